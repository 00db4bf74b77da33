"""What chunk kernels share inside a tile: angles from a chunk's tables, and rotation."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def angles(
    table,
    line,
    pair,
    nope: tl.constexpr,
    rope: tl.constexpr,
    rest: tl.constexpr,
):
    """Entries [lines, pairs] of a table [n, rope / 2] for the pairs of a row; `rest` where nothing turns."""
    at = pair - nope // 2
    inside = (at >= 0) & (at < rope // 2)
    return tl.load(table + line[:, None] * (rope // 2) + at[None, :], mask=inside[None, :], other=rest)


@triton.jit
def turn(x, cos, sin, lines: tl.constexpr, pad: tl.constexpr):
    """Rows `x` [lines, pad] rotated by angles [lines or 1, pad / 2]; give -sin for the inverse."""
    even, odd = tl.split(tl.reshape(x, (lines, pad // 2, 2)))
    return tl.reshape(tl.join(even * cos - odd * sin, even * sin + odd * cos), (lines, pad))
