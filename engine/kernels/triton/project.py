"""What follows the first projections of attention: the low-rank query normed, the token's own row written.

The raw window of a sequence is a ring of `RING` rows,
position p at p mod RING, so that the rows of a verify step never overwrite what an earlier one still sees.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.ref.packed import Planes
from engine.kernels.triton.chain import follow
from engine.kernels.triton.numbers import halves_store, split_scale, split_store
from engine.kernels.triton.rows import store_kv

RING = 256


@triton.jit
def rope_pair(x, swapped, angles, tail_at: tl.constexpr, column):
    """Rotate the values from `tail_at` on; `angles` points at cos and sin [pairs, 2] of one position."""
    pair = tl.maximum(column - tail_at, 0) // 2
    turned = column >= tail_at
    cos = tl.load(angles + pair * 2, mask=turned, other=1.0)
    sin = tl.load(angles + pair * 2 + 1, mask=turned, other=0.0)
    return x * cos + tl.where(column % 2 == 0, -swapped, swapped) * sin


@triton.jit
def _low(z, norm, ints, scales, halves, rank: tl.constexpr, rms_eps):
    """The normed low-rank query of one row, as planes."""
    column = tl.arange(0, rank // 256)[:, None] * 256 + tl.arange(0, 256)[None, :]
    x = tl.load(z + column)
    root = 1.0 / tl.sqrt(tl.sum(tl.sum(x * x, 1), 0) / rank + rms_eps)
    x = x * root * tl.load(norm + column)
    unit = split_scale(tl.max(tl.abs(x), 1))
    tl.store(scales + tl.arange(0, rank // 256), unit)
    split_store(x, unit[:, None], ints, column)
    halves_store(x, halves, column)


@triton.jit
def _own(z, norm, angles, to, nope: tl.constexpr, width: tl.constexpr, rms_eps):
    """The normed and rotated row of one token, stored at `to`."""
    column = tl.arange(0, width)
    x = tl.load(z + column)
    root = 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + rms_eps)
    other = tl.load(z + (column ^ 1)) * root * tl.load(norm + (column ^ 1))
    store_kv(rope_pair(x * root * tl.load(norm + column), other, angles, nope, column), to, nope, width)


@triton.jit
def _finish(
    z,
    q_norm,
    kv_norm,
    angles,
    positions,
    slots,
    ring,
    ints,
    scales,
    halves,
    rank: tl.constexpr,
    nope: tl.constexpr,
    width: tl.constexpr,
    row_stride: tl.constexpr,
    ring_rows: tl.constexpr,
    angle_stride,
    rms_eps,
):
    follow()
    row = tl.program_id(0).to(tl.int64)
    z += row * (rank + width)
    if tl.program_id(1) == 0:
        _low(
            z,
            q_norm,
            ints + row * rank * 2,
            scales + row * (rank // 256),
            halves + row * rank * 2,
            rank,
            rms_eps,
        )
    else:
        place = tl.load(slots + row).to(tl.int64) * ring_rows + tl.load(positions + row) % ring_rows
        _own(z + rank, kv_norm, angles + row * angle_stride, ring + place * row_stride, nope, width, rms_eps)


def finish(
    z: Tensor,
    norms: tuple[Tensor, Tensor],
    angles: Tensor,
    places: tuple[Tensor, Tensor],
    ring: Tensor,
    out: Planes,
    *,
    nope: int,
    rms_eps: float,
) -> None:
    """From z [M, rank + D] the normed query planes of rank values, and the cached row of each token.

    `norms` are the weights of both norms, `angles` float32 [M, kinds, rope / 2, 2] beginning with the layer's
    kind, `places` positions and slots int32 [M], `ring` [slots, RING, stored].
    """
    rank, width = norms[0].shape[0], norms[1].shape[0]
    _finish[(z.shape[0], 2)](
        z,
        *norms,
        angles,
        *places,
        ring,
        out.ints,
        out.scales,
        out.halves,
        rank,
        nope,
        width,
        ring.shape[-1],
        ring.shape[1],
        angles.stride(0),
        rms_eps,
        launch_pdl=True,
        num_warps=4,
    )
