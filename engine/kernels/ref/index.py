"""The indexer: scores of compressed rows for a query, and the choice of the best (docs/model.md, 6).

The choice is a set with a total order behind it: higher score first, lower row first among equals.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.ref.linear import linear, mixed

INDEX_TILE = 1024  # rows that are scored in one product
_GROUP = 8  # rows that are represented by their best score in the first round of a choice
_WIDE = 32  # two rounds pay once there are this many times more rows than chosen ones


def scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """Sum over heads of relu(q . key) times the head's weight: [T, H, D], [R, D], [T, H] to [T, R]."""
    dots = linear(q.flatten(0, 1), keys).view(*q.shape[:2], -1)
    return mixed(weights.unsqueeze(1), dots.relu_()).squeeze(1)


def select(score: Tensor, k: int) -> Tensor:
    """The k best rows for each query [T, R], R > k, ascending, int64 [T, k]; hide a row with -inf."""
    wide = score.shape[1] >= _WIDE * k and score.shape[1] % _GROUP == 0
    values, rows = _leading(score, k + 1) if wide else score.topk(k + 1, dim=1)
    chosen = rows[:, :k].sort(dim=1).values
    tied = values[:, k - 1] == values[:, k]
    if tied.any():
        chosen[tied] = _settle(score[tied], values[tied, k - 1 : k], k)
    return chosen


def _leading(score: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores in descending order and their rows, in two rounds.

    The k groups with the largest maxima hold the k largest scores; a group is every (R / 8)-th row.
    """
    groups = score.view(len(score), _GROUP, -1)
    leaders = groups.amax(1).topk(k, dim=1, sorted=False).indices.unsqueeze(1)
    members = leaders.expand(-1, _GROUP, -1)
    values, at = groups.gather(2, members).flatten(1).topk(k, dim=1)
    first = torch.arange(_GROUP).unsqueeze(1) * groups.shape[2]
    return values, (members + first).flatten(1).gather(1, at)


def _settle(score: Tensor, least: Tensor, k: int) -> Tensor:
    """The chosen rows where several share the last place: of those, the lowest."""
    above, equal = score > least, score == least
    room = k - above.sum(1, keepdim=True)
    return (above | (equal & (equal.cumsum(1) <= room))).nonzero()[:, 1].view(-1, k)
