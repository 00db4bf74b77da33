"""Rows of float32 as the packed products read them: 16-bit integers in two int8 halves, a scale each 256."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.ref.packed import Planes
from engine.kernels.triton.chain import follow
from engine.kernels.triton.numbers import split_scale, split_store

BLOCK = 256


@triton.jit
def _planes(x, ints, scales, sums, width: tl.constexpr, WITH_SUMS: tl.constexpr):
    follow()
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    sub = tl.arange(0, 16)[:, None]
    column = block * 256 + sub * 16 + tl.arange(0, 16)[None, :]
    values = tl.load(x + row * width + column)
    scale = split_scale(tl.max(tl.max(tl.abs(values), 1), 0))
    whole = split_store(values, scale, ints + row * width * 2, column)
    at = row * (width // 256) + block
    tl.store(scales + at, scale)
    if WITH_SUMS:
        total = tl.sum(whole, 1) / 32768.0
        high = total.to(tl.float16)
        low = (total - high.to(tl.float32)).to(tl.float16)
        which = tl.arange(0, 16)
        place = sums + at * 32 + (which % 2) * 8 + which // 2
        tl.store(place, high)
        tl.store(place + 16, low)


def planes(x: Tensor, out: Planes, sums: Tensor | None = None) -> None:
    """Split rows `x` [R, K] into the first R rows of `out`, integers alone.

    `sums` float16 [R, K / 256, 2, 16] gets the sums of the integers over 16 values in parts of 2^15, high and
    low part, even sub-blocks before odd ones: what the minima of Q2_K multiply.
    """
    rows, width = x.shape
    _planes[(rows, width // BLOCK)](
        x, out.ints, out.scales, sums, width, sums is not None, launch_pdl=True, num_warps=1
    )
