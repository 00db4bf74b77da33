"""The indexer: scores of compressed rows for a query, and the choice of the best (docs/model.md, 6).

The choice is a set with a total order behind it: higher score first, lower row first among equals.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.ref.linear import linear

EMPTY = 1 << 48  # in place of a row where there is none; larger than any row, exact in every number type
_HIDDEN = -(1 << 63)
_ROW_MASK = (1 << 32) - 1


def scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """Sum over heads of relu(q . key) times the head's weight: [T, H, D], [R, D], [T, H] to [T, R]."""
    dots = linear(q.flatten(0, 1), keys).view(*q.shape[:2], -1)
    return dots.relu_().mul_(weights.unsqueeze(-1)).sum(1)


def select(score: Tensor, visible: Tensor, k: int) -> Tensor:
    """The k best of the first `visible` [T] rows for each query [T, R], ascending, int64 [T, k].

    Where fewer than k rows are visible, `EMPTY` fills the places behind them.
    """
    count = score.shape[1]
    rows = torch.arange(count, device=score.device)
    shown = rows < visible.unsqueeze(1)
    if count <= k:
        return functional.pad(torch.where(shown, rows, EMPTY), (0, k - count), value=EMPTY)
    best = _keys(score, rows).masked_fill_(~shown, _HIDDEN).topk(k, dim=1, sorted=False).values
    chosen = torch.where(best == _HIDDEN, EMPTY, _ROW_MASK - (best & _ROW_MASK))
    return chosen.sort(dim=1).values


def _keys(score: Tensor, rows: Tensor) -> Tensor:
    """Distinct int64 keys in the order of choice: the score's ordered bits, then lower rows."""
    bits = (score + 0.0).view(torch.int32)  # + 0.0 makes a negative zero equal to zero
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (ordered.to(torch.int64) << 32) | (_ROW_MASK - rows)
