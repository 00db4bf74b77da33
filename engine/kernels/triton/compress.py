"""Compression in a decode step: collect each token's keys and scores, and emit the row of a window that
closes.

A sequence's collected tokens lie in float32 rings: of two windows where they overlap (ratio 4), of one
elsewhere.  The rows of one sequence in a step come one after the other, in one program.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.project import rope_pair
from engine.kernels.triton.rows import store_index, store_kv

PAGE_TOKENS = 128
AHEAD = tl.constexpr(8)  # slots of a window that are loaded at a time; every window has a multiple of them


@triton.jit
def _pool(keys, scores, column, ratio: tl.constexpr, channels: tl.constexpr, window, OVERLAP: tl.constexpr):
    """Softmax over the slots per channel, weighted sum: [width] of the channels `column`."""
    count: tl.constexpr = OVERLAP * 4 + ratio
    peak = tl.full(column.shape, float("-inf"), tl.float32)
    for start in range(0, count, AHEAD):
        for step in tl.static_range(AHEAD):
            at = start + step
            place, shift = _slot(at, channels, window, OVERLAP)
            score = tl.load(scores + place * channels + shift + column)
            peak = tl.maximum(peak, tl.where((at < OVERLAP * 4) & (window == 0), float("-inf"), score))
    total = tl.zeros(column.shape, tl.float32)
    out = tl.zeros(column.shape, tl.float32)
    for start in range(0, count, AHEAD):
        for step in tl.static_range(AHEAD):
            at = start + step
            place, shift = _slot(at, channels, window, OVERLAP)
            score = tl.load(scores + place * channels + shift + column)
            weight = tl.exp(tl.where((at < OVERLAP * 4) & (window == 0), float("-inf"), score) - peak)
            total += weight
            out += weight * tl.load(keys + place * channels + shift + column)
    return out / total


@triton.jit
def _slot(at, channels: tl.constexpr, window, OVERLAP: tl.constexpr):
    """Ring place and channel offset of slot `at`: first the window before, then the own one."""
    place = at
    shift = 0
    if OVERLAP:
        before = at < 4
        place = tl.where(before, ((window + 1) % 2) * 4 + at, (window % 2) * 4 + at - 4)
        shift = tl.where(before, 0, channels // 2)
    return place, shift


@triton.jit
def _compress(
    z,
    z_stride,
    ape,
    norm,
    angles,
    angle_stride,
    positions,
    slots,
    keys,
    scores,
    pool,
    pages,
    page_stride,
    rows,
    ratio: tl.constexpr,
    ring: tl.constexpr,
    channels: tl.constexpr,
    width: tl.constexpr,
    nope: tl.constexpr,
    row_stride: tl.constexpr,
    page_tokens: tl.constexpr,
    INDEX: tl.constexpr,
    spread,
    rms_eps,
):
    first = tl.program_id(0)
    slot = tl.load(slots + first)
    fresh = first == 0
    if first > 0:
        fresh = tl.load(slots + first - 1) != slot
    keys += slot.to(tl.int64) * ring * channels
    scores += slot.to(tl.int64) * ring * channels
    OVERLAP: tl.constexpr = 1 if ring > ratio else 0
    member = tl.arange(0, channels)
    column = tl.arange(0, width)
    last = tl.where(fresh, rows, first)
    for row in range(first, last):
        if tl.load(slots + row) == slot:
            position = tl.load(positions + row)
            token = z + row * z_stride
            place = position % ring
            tl.store(keys + place * channels + member, tl.load(token + member))
            score = tl.load(token + channels + member) + tl.load(
                ape + (position % ratio) * channels + member
            ).to(tl.float32)
            tl.store(scores + place * channels + member, score)
            tl.debug_barrier()
            if position % ratio == ratio - 1:
                window = position // ratio
                x = _pool(keys, scores, column, ratio, channels, window, OVERLAP)
                other = _pool(keys, scores, column ^ 1, ratio, channels, window, OVERLAP)
                root = 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + rms_eps)
                x = x * root * tl.load(norm + column)
                other = other * root * tl.load(norm + (column ^ 1))
                x = rope_pair(x, other, angles + row * angle_stride, nope, column)
                per_page: tl.constexpr = page_tokens // ratio
                page = tl.load(pages + slot.to(tl.int64) * page_stride + window // per_page).to(tl.int64)
                to = pool + (page * per_page + window % per_page) * row_stride
                if INDEX:
                    store_index(x, spread, to, width)
                else:
                    store_kv(x, to, nope, width)
            tl.debug_barrier()


def compress(
    z: Tensor,
    weights: tuple[Tensor, Tensor],
    angles: Tensor,
    places: tuple[Tensor, Tensor],
    state: tuple[Tensor, Tensor],
    pool: Tensor,
    pages: Tensor,
    *,
    ratio: int,
    nope: int,
    index: bool,
    rms_eps: float,
) -> None:
    """Collect tokens from z [M, >= 2 channels] (keys, then scores) and emit closed windows into `pool`.

    `weights` are the position bias [ratio, channels] and the norm weight [width]; `angles` [M, ..] point at
    the position of a closing window's first token; `state` is keys and scores float32 [slots, ring,
    channels]; `pool` [pages * rows a page, stored]; `pages` int32 [slots, pages].
    """
    ape, norm = weights
    keys, scores = state
    width = norm.shape[0]
    _compress[(z.shape[0],)](
        z,
        z.stride(0),
        ape,
        norm,
        angles,
        angles.stride(0),
        *places,
        keys,
        scores,
        pool,
        pages,
        pages.stride(0),
        z.shape[0],
        ratio,
        keys.shape[1],
        keys.shape[2],
        width,
        nope,
        pool.shape[-1],
        PAGE_TOKENS,
        index,
        width**-0.5,
        rms_eps,
        num_warps=4,
    )
