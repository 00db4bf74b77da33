"""Attention of query rows over the raw window and tiles of compressed rows, with learned sinks.

A row is key and value at once (docs/model.md, 4).  Tiles have fixed sizes and a fixed order, invisible rows
weigh exactly zero, and the maximum is exact, so a query's bits do not depend on how queries were cut into
chunks.  Knows nothing of compression or caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.ref.lanes import constant
from engine.kernels.ref.linear import linear, paired, times

ROW_TILE = 256  # compressed rows in one tile where all of them are looked at


@dataclass(frozen=True, slots=True)
class Window:
    """Raw rows by place in the ring; a place shows its row of the query's own block or of the block before.

    `own` and `before` are [W, D]; before is None in the first block, and the same tensor as `own` for a
    single query.  `mine` bool [T, W] says which places show their own block; `shares` [T, 2, 1, W] says the
    same in numbers: 1 for places of the own block, then 1 for places of the block before, else 0.
    """

    own: Tensor
    before: Tensor | None
    mine: Tensor
    shares: Tensor

    @staticmethod
    def shares_of(mine: Tensor) -> Tensor:
        """The shares that belong to `mine`."""
        return torch.stack((mine, ~mine), 1).unsqueeze(2).float()


@dataclass(frozen=True, slots=True)
class Tile:
    """Compressed rows: [S, D] shared by all queries or [T, S, D] one set a query.

    `bias` [T, S] is 0 or minus infinity; None shows all of them.
    """

    rows: Tensor
    bias: Tensor | None


def attend(q: Tensor, window: Window, tiles: Sequence[Tile], sinks: Tensor) -> Tensor:
    """Softmax attention of `q` [T, H, D]; `sinks` [H] only take weight.  Returns [T, H, D]."""
    q = q * constant(q.shape[-1] ** -0.5)
    near = _near_scores(q, window)
    far = [_scores(q, tile) for tile in tiles]
    peak = torch.maximum(near.amax(-1), sinks)
    for score in far:
        peak = torch.maximum(peak, score.amax(-1))
    top = peak.unsqueeze(-1)
    weight = near.sub_(top).exp_()
    total = (sinks - peak).exp_().add_(weight.sum(-1))
    out = _weigh_window(weight, window)
    for tile, score in zip(tiles, far, strict=True):
        weight = score.sub_(top).exp_()
        total += weight.sum(-1)
        out += _weigh(weight, tile.rows)
    return out.div_(total.unsqueeze(-1))


def _near_scores(q: Tensor, window: Window) -> Tensor:
    """Scores [T, H, W] of the window's places."""
    own = _shared_scores(q, window.own)
    if window.before is None:
        return own.masked_fill_(~window.mine.unsqueeze(1), float("-inf"))
    if window.before is window.own:
        return own
    return torch.where(window.mine.unsqueeze(1), own, _shared_scores(q, window.before))


def _weigh_window(weight: Tensor, window: Window) -> Tensor:
    """Rows of the own block, then rows of the block before: two sums, so that their order is fixed."""
    if window.before is None:
        return _weigh(weight, window.own)
    if window.before is window.own:  # one query
        both = _weigh(weight * window.shares[0], window.own)
        return both[:1] + both[1:]
    own, before = (weight * share for share in window.shares.unbind(1))
    return _weigh(own, window.own).add_(_weigh(before, window.before))


def _scores(q: Tensor, tile: Tile) -> Tensor:
    """Scores [T, H, S], minus infinity where invisible."""
    score = paired(q, tile.rows.transpose(1, 2)) if tile.rows.dim() == 3 else _shared_scores(q, tile.rows)
    return score if tile.bias is None else score.add_(tile.bias.unsqueeze(1))


def _shared_scores(q: Tensor, rows: Tensor) -> Tensor:
    return linear(q.flatten(0, 1), rows).view(*q.shape[:2], -1)


def _weigh(weight: Tensor, rows: Tensor) -> Tensor:
    """Weighted sums of rows: [T, H, S] with [S, D] or [T, S, D] to [T, H, D]."""
    if rows.dim() == 3:
        return paired(weight, rows)
    return times(weight.flatten(0, 1), rows).view(*weight.shape[:2], -1)
