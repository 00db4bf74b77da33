"""Matrix products whose rows keep their bits whatever runs beside them: every matmul goes through here.

A CPU library picks its kernel by the number of rows, and a row alone may round differently from the same
row among others.  With the number of rows filled up to a multiple of `ROW_BLOCK` it does not: measured with
torch 2.13 on CPUs with AVX2 and AVX-512, 1 and 2 threads, 4 to 4,096 rows, inner widths 64 to 8,192, no
mismatch but one on a Xeon, which `engine.config.keep_sums_in_order` mends.  `engine.model.selfcheck` proves
it on the CPU at hand.  Products of a batch (`grouped`, `paired`, `mixed`) are one kernel call per item.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

ROW_BLOCK = 4
_DECODING = 8  # rows of decoded tokens that a chunk of prefill comes with, at most, as servers are set up
_PACKED_VALUES = 1 << 14  # of a weight; a smaller one takes less time than the packed product's own 10 us
_PACKED_ROWS = 64  # rows that the packed order is chosen for; it serves any number of them


class Packed:
    """A weight in the order in which oneDNN reads it: of few rows twice as fast as columns side by side."""

    __slots__ = ("_weight",)

    def __init__(self, columns: Tensor) -> None:
        """`columns` [K, N], float32 on the CPU; see `packs`."""
        self._weight = torch.ops.mkldnn._reorder_linear_weight(columns.t().contiguous(), _PACKED_ROWS)

    @staticmethod
    def packs(columns: Tensor) -> bool:
        """Whether packing is possible here, and pays for this weight."""
        usable = columns.device.type == "cpu" and torch.backends.mkldnn.is_available()
        return usable and columns.dim() == 2 and columns.numel() >= _PACKED_VALUES

    def columns(self) -> Tensor:
        """The weight [K, N] again."""
        weight: Tensor = self._weight.to_dense()
        return weight.t()

    def times(self, x: Tensor) -> Tensor:
        """Rows `x` [M, K] times the weight: [M, N]."""
        rows = x.shape[0]
        filled = x if rows == whole(rows) else _filled(x, whole(rows))
        multiply = torch.ops.mkldnn._linear_pointwise.default  # without bias and function
        product: Tensor = multiply(filled, self._weight, None, "none", [], "")
        return product if filled is x else product[:rows]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Rows `x` [M, K] times `weight` [N, K] transposed: [M, N]."""
    return times(x, weight.t())


def times(x: Tensor, columns: Tensor) -> Tensor:
    """Rows `x` [M, K] times `columns` [K, N]: [M, N]."""
    rows = x.shape[0]
    if rows % ROW_BLOCK == 0 or x.device.type != "cpu":
        return x.mm(columns)
    return _filled(x, _blocks(rows)).mm(columns)[:rows]


def grouped(x: Tensor, columns: Tensor) -> Tensor:
    """Each group's values with its own matrix: [M, G, K] and [G, K, N] to [M, G, N]."""
    rows = x.shape[0]
    filled = x if rows % ROW_BLOCK == 0 or x.device.type != "cpu" else _fill(x, 0, _blocks(rows))
    return filled.transpose(0, 1).bmm(columns).transpose(0, 1)[:rows]


def paired(x: Tensor, right: Tensor) -> Tensor:
    """Item by item: [T, M, K] and [T, K, N] to [T, M, N]."""
    rows = x.shape[1]
    if rows % ROW_BLOCK == 0 or x.device.type != "cpu":
        return x.bmm(right)
    return _fill(x, 1, _blocks(rows)).bmm(right)[:, :rows]


def mixed(left: Tensor, right: Tensor) -> Tensor:
    """Item by item where the left side's rows are the model's, not the batch's: [T, M, K] and [T, K, N].

    Every call has the same shape per item, so there is nothing to fill up.
    """
    return left.bmm(right)


def whole(rows: int) -> int:
    """How many rows a step or an expert of so many is filled up to: one of few multiples of `ROW_BLOCK`.

    oneDNN makes code for every row count, weight's shape and number of threads, in 1 ms and 0.56 MiB, and
    keeps the last 1,024: with every multiple of 4 a server grew by 350 MiB while it met them.  From 40 rows
    on there are four counts an octave, each 8 above a round one, so that a chunk of 2^n rows, alone or with
    decoded tokens, has one count.
    """
    above = rows - _DECODING
    step = max(ROW_BLOCK, (1 << (above - 1).bit_length()) // 8)
    return _DECODING + -(-above // step) * step


def _blocks(rows: int) -> int:
    """The next multiple of `ROW_BLOCK`."""
    return -(-rows // ROW_BLOCK) * ROW_BLOCK


def _filled(x: Tensor, size: int) -> Tensor:
    """Rows [M, K] filled up to [size, K]; a lone row is repeated, a third of the time of adding zeros."""
    return x.expand(size, -1).contiguous() if x.shape[0] == 1 else _fill(x, 0, size)


def _fill(x: Tensor, dim: int, size: int) -> Tensor:
    """Zero rows appended along `dim` (counted among the leading dimensions) up to `size` of them."""
    pads = [0, 0] * (x.dim() - 1 - dim) + [0, size - x.shape[dim]]
    return functional.pad(x, pads)
