"""The indexer: scores of compressed rows for a query, and the choice of the best (docs/model.md, 6).

The choice is a set with a total order behind it: higher score first, lower row first among equals.
"""

from __future__ import annotations

from torch import Tensor

from engine.kernels.ref.linear import linear

_GROUP = 8  # rows that are represented by their best score in the first round of a choice
_WIDE = 8  # the first round pays once there are this many times more groups' rows than chosen ones


def scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """Sum over heads of relu(q . key) times the head's weight: [T, H, D], [R, D], [T, H] to [T, R]."""
    dots = linear(q.flatten(0, 1), keys).view(*q.shape[:2], -1)
    return dots.relu_().mul_(weights.unsqueeze(-1)).sum(1)


def select(score: Tensor, k: int) -> Tensor:
    """The k best of at least k rows for each query [T, R], ascending, int64 [T, k]; hide a row with -inf."""
    least = _kth(score, k)
    chosen = score >= least
    tied = chosen.sum(1) != k
    if tied.any():
        chosen[tied] = _settle(score[tied], least[tied], k)
    return chosen.nonzero()[:, 1].view(-1, k)


def _settle(score: Tensor, least: Tensor, k: int) -> Tensor:
    """Mask of the chosen rows where several share the last place: the lowest rows of those."""
    above, equal = score > least, score == least
    room = k - above.sum(1, keepdim=True)
    return above | (equal & (equal.cumsum(1) <= room))


def _kth(score: Tensor, k: int) -> Tensor:
    """The k-th largest score of each query [T, 1].

    Wide queries take two rounds: the k groups with the largest maxima hold the k largest scores.
    """
    rows = score.shape[1]
    if rows >= _WIDE * k * _GROUP // 2 and rows % _GROUP == 0:
        groups = score.view(len(score), _GROUP, rows // _GROUP)  # a group is every (R / 8)-th row
        leaders = groups.amax(1).topk(k, dim=1, sorted=False).indices
        score = groups.gather(2, leaders.unsqueeze(1).expand(-1, _GROUP, -1)).flatten(1)
    return score.topk(k, dim=1, sorted=False).values.amin(1, keepdim=True)
