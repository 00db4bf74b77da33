"""Attention of query rows over tiles of cached rows, with learned sinks (docs/model.md, 4).

A row is key and value at once.  Tiles have fixed sizes and a fixed order, invisible rows weigh exactly
zero, and the maximum is exact, so a query's bits do not depend on how the queries were cut into chunks.
Knows nothing of windows, compression or caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.ref.linear import linear, paired


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows to look at: [S, D] shared by all queries or [T, S, D] one set a query; None shows all of them."""

    rows: Tensor
    visible: Tensor | None  # bool [T, S]


def attend(q: Tensor, tiles: Sequence[Tile], sinks: Tensor) -> Tensor:
    """Softmax attention of `q` [T, H, D] over all tiles; `sinks` [H] only take weight.  Returns [T, H, D]."""
    q = q * q.shape[-1] ** -0.5
    scores = [_scores(q, tile) for tile in tiles]
    peak = sinks.expand(q.shape[0], -1)
    for score in scores:
        peak = torch.maximum(peak, score.amax(-1))
    total = (sinks - peak).exp_()
    out: Tensor | None = None
    for tile, score in zip(tiles, scores, strict=True):
        weight = score.sub_(peak.unsqueeze(-1)).exp_()
        total += weight.sum(-1)
        part = _weigh(weight, tile.rows)
        out = part if out is None else out.add_(part)
    assert out is not None
    return out.div_(total.unsqueeze(-1))


def _scores(q: Tensor, tile: Tile) -> Tensor:
    """Scores [T, H, S], minus infinity where invisible."""
    if tile.rows.dim() == 3:
        score = paired(q, tile.rows.transpose(1, 2))
    else:
        score = linear(q.flatten(0, 1), tile.rows).view(*q.shape[:2], -1)
    if tile.visible is not None:
        score.masked_fill_(~tile.visible.unsqueeze(1), float("-inf"))
    return score


def _weigh(weight: Tensor, rows: Tensor) -> Tensor:
    """Weighted sums of rows: [T, H, S] with [S, D] or [T, S, D] to [T, H, D]."""
    if rows.dim() == 3:
        return paired(weight, rows)
    return linear(weight.flatten(0, 1), rows.t()).view(*weight.shape[:2], -1)
