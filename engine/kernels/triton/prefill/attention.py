"""Attention of a chunk: one token's heads a program over its compressed rows and its window, with sinks.

Norm and rotation of the query and the inverse rotation of the output happen on the way in and out, so
queries and outputs cross memory once.  Rows are BF16 and exact; products are BF16 with float32 sums, weights
round to BF16 before the second product, as in the official model.  Twin: `engine.kernels.ref.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.numbers import OPERAND, narrow
from engine.kernels.triton.prefill.card import roomy
from engine.kernels.triton.prefill.tiles import angles, turn

LOG2E = 1.4426950408889634
_LOG2E = tl.constexpr(LOG2E)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a chunk looks at: `data` BF16 [far + window + T, D], compressed rows, then raw ones in order.

    Raw row j of the second part stands at position `first` - window + j; rows before position 0 are unused.
    """

    data: Tensor
    far: int
    window: int
    first: int
    ratio: int  # 0: there are no compressed rows


@dataclass(frozen=True, slots=True)
class Heads:
    """Angles [T, rope / 2], sinks [H] and the epsilon of the query's norm."""

    cos: Tensor
    sin: Tensor
    sinks: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of one step, warps and pipeline stages."""

    rows: int
    warps: int
    stages: int


def tile(device: torch.device) -> Tile:
    """Larger steps where a block may have more shared memory."""
    return Tile(64, 8, 2) if roomy(device) else Tile(16, 8, 1)


@triton.jit
def _attend(
    q, rows, chosen, cos, sin, sinks, out, far, first,
    eps: tl.constexpr, scale: tl.constexpr, window: tl.constexpr, ratio: tl.constexpr, most: tl.constexpr,
    heads: tl.constexpr, nope: tl.constexpr, rope: tl.constexpr,
    block: tl.constexpr, step: tl.constexpr, pad: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    line = token.to(tl.int64)
    width: tl.constexpr = nope + rope
    head = tl.program_id(1) * block + tl.arange(0, block)
    column = tl.arange(0, pad)
    mine = (head < heads)[:, None] & (column < width)[None, :]
    at = line * (heads * width) + head[:, None] * width + column[None, :]
    x = tl.load(q + at, mask=mine, other=0.0).to(tl.float32)
    x = x * (tl.rsqrt(tl.sum(x * x, 1) / width + eps) * scale)[:, None]
    pair = tl.arange(0, pad // 2)
    turning = tl.full((1,), 0, tl.int64) + line
    cosine = angles(cos, turning, pair, nope, rope, 1.0)
    sine = angles(sin, turning, pair, nope, rope, 0.0)
    # Through memory and back: an operand that was loaded stays in shared memory, one that was computed would
    # fill the registers.  Nobody else touches this part of the output.
    tl.store(out + at, narrow(turn(x, cosine, sine, block, pad)), mask=mine)
    tl.debug_barrier()
    query = tl.load(out + at, mask=mine, other=0.0).to(OPERAND)
    peak = tl.load(sinks + head, mask=head < heads, other=0.0) * _LOG2E
    total = tl.full((block,), 1.0, tl.float32)
    sums = tl.zeros((block, pad), tl.float32)
    count = 0
    if ratio > 0:
        count = (first + token + 1) // ratio
        if most > 0:
            count = tl.minimum(count, most)
    unused = tl.maximum(window - 1 - first - token, 0)  # window places before position 0
    near = far + token + 1 + unused - count
    end = count + window - unused
    for start in range(0, end, step):
        place = start + tl.arange(0, step)
        if most > 0:
            picked = tl.load(chosen + line * most + place, mask=place < count, other=0)
            row = tl.where(place < count, picked, near + place)
        else:
            row = tl.where(place < count, place, near + place)
        live = place < end
        row = tl.where(live, row, 0).to(tl.int64)
        if pad == width:
            kv = tl.load(rows + row[:, None] * width + column[None, :])
        else:
            kv = tl.load(
                rows + row[:, None] * width + column[None, :], mask=(column < width)[None, :], other=0.0
            )
        kv = kv.to(OPERAND)
        score = tl.dot(query, tl.trans(kv))
        score = tl.where(live[None, :], score, float("-inf"))
        top = tl.maximum(peak, tl.max(score, 1))
        weight = tl.exp2(score - top[:, None])
        fade = tl.exp2(peak - top)
        total = total * fade + tl.sum(weight, 1)
        sums = tl.dot(narrow(weight).to(OPERAND), kv, sums * fade[:, None])
        peak = top
    result = turn(sums / total[:, None], cosine, -sine, block, pad)
    tl.store(out + at, narrow(result), mask=mine)


def attend(q: Tensor, rows: Rows, heads: Heads, chosen: Tensor | None, out: Tensor) -> None:
    """Outputs `out` BF16 [T, H, D] of raw queries `q` [T, H, D], rotated back.

    `chosen` int32 [T, k] names the compressed rows of each token, ascending and those that exist first;
    None shows all closed ones.  Against the twin on the same rows: 2e-2 absolute for values near one.
    """
    tokens, count, width = q.shape
    size = tile(q.device)
    block = min(64, max(16, triton.next_power_of_2(count)))
    _attend[(tokens, triton.cdiv(count, block))](
        q, rows.data, rows.data if chosen is None else chosen, heads.cos, heads.sin, heads.sinks, out,
        rows.far, rows.first, heads.eps, width**-0.5 * LOG2E, rows.window, rows.ratio,
        0 if chosen is None else chosen.shape[1], count, width - 2 * heads.cos.shape[1],
        2 * heads.cos.shape[1], block, size.rows, max(16, triton.next_power_of_2(width)),
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
