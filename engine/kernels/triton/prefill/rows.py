"""Attention rows of a chunk: norm, rotate, round to E4M3, pack where they belong; and packed rows as BF16.

A packed row unpacks to BF16 exactly, so prefill expands the rows that it looks at once a chunk and all its
queries read those.  Twins: `norm.rms_norm`, `rope.rotate`, `rounding`, `rows` of `engine.kernels.ref`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.rows import KvLayout
from engine.kernels.triton.numbers import e4m3_decode, e4m3_encode, e4m3_exponent, narrow, power
from engine.kernels.triton.prefill.tiles import angles, turn

LINES = 4  # rows of one program


@dataclass(frozen=True, slots=True)
class Finish:
    """What turns raw rows into attention rows: norm weight [D], epsilon, angles [n, rope / 2] of the rows."""

    weight: Tensor
    eps: float
    cos: Tensor
    sin: Tensor


@triton.jit
def _finish(
    x, weight, cos, sin, at, packed, tails, wide, count, stride,
    eps: tl.constexpr, nope: tl.constexpr, rope: tl.constexpr, nbytes: tl.constexpr, scale_at: tl.constexpr,
    tail_at: tl.constexpr, lines: tl.constexpr, pad: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    column = tl.arange(0, pad)
    live = line < count
    inside = live[:, None] & (column < nope + rope)[None, :]
    y = tl.load(x + line[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    y = y * tl.rsqrt(tl.sum(y * y, 1) / (nope + rope) + eps)[:, None]
    y = y * tl.load(weight + column, mask=column < nope + rope, other=0.0)[None, :]
    pair = tl.arange(0, pad // 2)
    safe = tl.minimum(line, count - 1)
    y = turn(
        y, angles(cos, safe, pair, nope, rope, 1.0), angles(sin, safe, pair, nope, rope, 0.0), lines, pad
    )
    blocks = tl.reshape(y, (lines, pad // 64, 64))
    exponent = e4m3_exponent(tl.max(tl.abs(blocks), 2))
    codes = e4m3_encode(blocks * power(-exponent)[:, :, None])
    rounded = tl.reshape(e4m3_decode(codes) * power(exponent)[:, :, None], (lines, pad))
    result = narrow(tl.where((column < nope)[None, :], rounded, y))
    tl.store(wide + line[:, None] * (nope + rope) + column[None, :], result, mask=inside)
    place = tl.load(at + line, mask=live, other=-1).to(tl.int64)
    kept = place >= 0
    code = tl.reshape(codes, (lines, pad)).to(tl.uint8)
    tl.store(
        packed + place[:, None] * nbytes + column[None, :],
        code,
        mask=kept[:, None] & (column < nope)[None, :],
    )
    block = tl.arange(0, pad // 64)
    tl.store(
        packed + place[:, None] * nbytes + scale_at + block[None, :],
        (exponent + 127).to(tl.uint8),
        mask=kept[:, None] & (block < nope // 64)[None, :],
    )
    tail = tails + place[:, None] * (nbytes // 2) + (tail_at // 2 - nope) + column[None, :]
    tl.store(tail, result, mask=(kept[:, None] & inside) & (column >= nope)[None, :])


def finish(x: Tensor, how: Finish, layout: KvLayout, at: Tensor, packed: Tensor, wide: Tensor) -> None:
    """Raw rows `x` [n, D] to rounded BF16 rows `wide` [n, D] and to the packed rows `at` [n] of `packed`.

    `packed` is uint8 [rows, nbytes]; a negative place keeps a row out of it.  Against the twins: codes and
    scales equal but where float32 sums of another order cross a rounding edge (fewer than 1 in 1,000).
    """
    pad = max(64, triton.next_power_of_2(layout.width))
    _finish[(triton.cdiv(len(x), LINES),)](
        x, how.weight, how.cos, how.sin, at, packed, packed.view(torch.bfloat16), wide, len(x), x.stride(0),
        how.eps, layout.nope, layout.rope, layout.nbytes, layout.scale_at, layout.tail_at, LINES, pad,
    )  # fmt: skip


@triton.jit
def _unpack(
    packed, tails, at, wide, count,
    nope: tl.constexpr, rope: tl.constexpr, nbytes: tl.constexpr, scale_at: tl.constexpr,
    tail_at: tl.constexpr, lines: tl.constexpr, pad: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    column = tl.arange(0, pad)
    live = (line < count)[:, None]
    place = tl.load(at + line, mask=line < count, other=0).to(tl.int64)[:, None]
    coded = live & (column < nope)[None, :]
    code = tl.load(packed + place * nbytes + column[None, :], mask=coded, other=0).to(tl.int32)
    byte = tl.load(packed + place * nbytes + scale_at + (column // 64)[None, :], mask=coded, other=127)
    near = live & ((column >= nope) & (column < nope + rope))[None, :]
    tail = tails + place * (nbytes // 2) + (tail_at // 2 - nope) + column[None, :]
    value = e4m3_decode(code) * power(byte.to(tl.int32) - 127)
    value = tl.where((column < nope)[None, :], value, tl.load(tail, mask=near, other=0.0).to(tl.float32))
    tl.store(wide + line[:, None] * (nope + rope) + column[None, :], narrow(value), mask=coded | near)


def unpack(packed: Tensor, at: Tensor, layout: KvLayout, wide: Tensor) -> None:
    """Packed rows `at` [n] of `packed` uint8 [rows, nbytes] to BF16 `wide` [n, D]; exact."""
    if not len(at):
        return
    pad = max(64, triton.next_power_of_2(layout.width))
    _unpack[(triton.cdiv(len(at), LINES),)](
        packed, packed.view(torch.bfloat16), at, wide, len(at),
        layout.nope, layout.rope, layout.nbytes, layout.scale_at, layout.tail_at, LINES, pad,
    )  # fmt: skip
