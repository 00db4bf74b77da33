"""Matrix products whose rows keep their bits whatever runs beside them: every matmul goes through here.

A CPU library picks its kernel by the number of rows, and a row alone may round differently from the same
row among others.  With the number of rows filled up to a multiple of `ROW_BLOCK` it does not: measured with
torch 2.13 on an AVX2 CPU, 1 and 2 threads, 4 to 4,096 rows, inner widths 64 to 8,192, no mismatch.
`engine.model.selfcheck` proves it on the CPU at hand.  Products of a batch (`grouped`, `paired`, `mixed`)
are one kernel call per item.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

ROW_BLOCK = 4


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Rows `x` [M, K] times `weight` [N, K] transposed: [M, N]."""
    return times(x, weight.t())


def times(x: Tensor, columns: Tensor) -> Tensor:
    """Rows `x` [M, K] times `columns` [K, N]: [M, N]."""
    rows = x.shape[0]
    if rows % ROW_BLOCK == 0 or x.device.type != "cpu":
        return x.mm(columns)
    return _fill(x, 0).mm(columns)[:rows]


def grouped(x: Tensor, weight: Tensor) -> Tensor:
    """Each group's columns with its own matrix: [M, G, K] and [G, N, K] to [M, G, N]."""
    rows = x.shape[0]
    filled = x if rows % ROW_BLOCK == 0 or x.device.type != "cpu" else _fill(x, 0)
    return filled.transpose(0, 1).bmm(weight.transpose(1, 2)).transpose(0, 1)[:rows]


def paired(x: Tensor, right: Tensor) -> Tensor:
    """Item by item: [T, M, K] and [T, K, N] to [T, M, N]."""
    rows = x.shape[1]
    if rows % ROW_BLOCK == 0 or x.device.type != "cpu":
        return x.bmm(right)
    return _fill(x, 1).bmm(right)[:, :rows]


def mixed(left: Tensor, right: Tensor) -> Tensor:
    """Item by item where the left side's rows are the model's, not the batch's: [T, M, K] and [T, K, N].

    Every call has the same shape per item, so there is nothing to fill up.
    """
    return left.bmm(right)


def _fill(x: Tensor, dim: int) -> Tensor:
    """Zero rows appended along `dim` (counted among the leading dimensions) up to a whole row block."""
    pads = [0, 0] * (x.dim() - 1 - dim) + [0, -x.shape[dim] % ROW_BLOCK]
    return functional.pad(x, pads)
