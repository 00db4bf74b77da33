"""Attention of a decode step over cached rows: the raw window and the chosen or all compressed rows.

A row's visible rows form one list, window first, cut in tiles; programs take fixed tiles, so the order of
every sum depends on the position alone.  Both operands of every product are BF16: a cached row is exact in
it, queries and weights come in two parts.  `attend` leaves partial results, `combine` adds them up in order;
a program without a tile leaves nothing, and nothing of it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.ref.packed import Planes
from engine.kernels.triton.chain import follow
from engine.kernels.triton.numbers import OPERAND, narrow, split_scale, split_store
from engine.kernels.triton.project import rope_pair
from engine.kernels.triton.rows import load_kv

TILE = 32  # rows of a product
SPLITS = 20  # programs a head group: 128 + 512 rows in tiles of 32
HEADS = 16  # heads of a program


@dataclass(frozen=True, slots=True)
class Partial:
    """Unfinished sums: float32 [M, splits, H, D], and peak and total [M, splits, H, 2]."""

    sums: Tensor
    peaks: Tensor

    @classmethod
    def empty(cls, rows: int, heads: int, width: int, device: torch.device) -> Partial:
        """Room for a step."""
        return cls(
            torch.zeros(rows, SPLITS, heads, width, device=device),
            torch.zeros(rows, SPLITS, heads, 2, device=device),
        )


@triton.jit
def _far(position, ratio: tl.constexpr, topk: tl.constexpr):
    """Compressed rows that a position sees."""
    far = 0
    if ratio > 0:
        far = (position + 1) // ratio
        if topk > 0:
            far = tl.minimum(far, topk)
    return far


@triton.jit
def _attend(
    queries,
    positions,
    slots,
    ring,
    pool,
    pages,
    page_stride,
    chosen,
    sums,
    peaks,
    heads: tl.constexpr,
    width: tl.constexpr,
    nope: tl.constexpr,
    row_stride: tl.constexpr,
    window: tl.constexpr,
    ring_rows: tl.constexpr,
    ratio: tl.constexpr,
    per_page: tl.constexpr,
    topk: tl.constexpr,
    splits: tl.constexpr,
    group: tl.constexpr,
    tile: tl.constexpr,
):
    split = tl.program_id(0)
    row = tl.program_id(2).to(tl.int64)
    position, slot = (
        tl.load(positions + row),
        tl.load(slots + row).to(tl.int64),
    )  # no launch of a step writes them
    follow()
    far = _far(position, ratio, topk)
    tiles = tl.cdiv(window + far, tile)
    if split < tiles:
        head = tl.program_id(1) * group + tl.arange(0, group)
        ring += slot * ring_rows * row_stride
        pages += slot * page_stride
        column = tl.arange(0, width)
        at_q = queries + row * 2 * heads * width + head[:, None] * width + column[None, :]
        high = tl.load(at_q).to(OPERAND)
        low = tl.load(at_q + heads * width).to(OPERAND)
        peak = tl.full([group], float("-inf"), tl.float32)
        total = tl.zeros([group], tl.float32)
        out = tl.zeros([group, width], tl.float32)
        for at in range(split, tiles, splits):
            entry = at * tile + tl.arange(0, tile)
            seen = position - window + 1 + entry
            near = entry < window
            live = tl.where(near, seen >= 0, entry < window + far)
            line = ring + tl.where(near & live, seen % ring_rows, 0).to(tl.int64) * row_stride
            if ratio > 0:
                compressed = entry - window
                if topk > 0:
                    compressed = tl.load(
                        chosen + row * topk + compressed, mask=live & (entry >= window), other=0
                    )
                inside = live & (entry >= window)
                page = tl.load(pages + compressed // per_page, mask=inside, other=0).to(tl.int64)
                away = pool + (page * per_page + compressed % per_page) * row_stride
                # A stored row is a multiple of 8 bytes; behind a choice of two addresses the compiler does
                # not see it, and would read bytes one by one.
                line = tl.multiple_of(tl.where(near, line, away), [8])
            k = load_kv(line, live, nope, width, tile).to(OPERAND)
            score = tl.dot(low, tl.trans(k), tl.dot(high, tl.trans(k)))
            score = tl.where(live[None, :], score, float("-inf"))
            top = tl.maximum(peak, tl.max(score, 1))
            safe = tl.where(top == float("-inf"), 0.0, top)
            weight = tl.exp(score - safe[:, None])
            fade = tl.exp(peak - safe)
            total = total * fade + tl.sum(weight, 1)
            first = narrow(weight)
            second = narrow(weight - first.to(tl.float32))
            out = tl.dot(second.to(OPERAND), k, tl.dot(first.to(OPERAND), k, out * fade[:, None]))
            peak = top
        to = (row * splits + split) * heads + head
        tl.store(sums + to[:, None] * width + column[None, :], out)
        tl.store(peaks + to * 2, peak)
        tl.store(peaks + to * 2 + 1, total)


@dataclass(frozen=True, slots=True)
class Far:
    """Compressed rows of a layer: pool [rows, stored], ratio, and the chosen rows [M, K] or None for all."""

    pool: Tensor
    ratio: int
    chosen: Tensor | None


def attend(
    queries: Tensor,
    places: tuple[Tensor, Tensor],
    ring: Tensor,
    far: Far | None,
    pages: Tensor,
    out: Partial,
    *,
    nope: int,
    window: int,
    page_tokens: int,
) -> None:
    """Partial attention of queries bfloat16 [M, 2, H, D] over the ring [slots, RING, stored] and
    compressed rows, both stored in the same way."""
    rows, _, heads, width = queries.shape
    positions, slots = places
    pool, ratio, chosen = (far.pool, far.ratio, far.chosen) if far else (ring, 0, None)
    _attend[(SPLITS, heads // HEADS, rows)](
        queries,
        positions,
        slots,
        ring,
        pool,
        pages,
        pages.stride(0),
        positions if chosen is None else chosen,
        out.sums,
        out.peaks,
        heads,
        width,
        nope,
        ring.shape[-1],
        window,
        ring.shape[1],
        ratio,
        page_tokens // ratio if ratio else 1,
        _most(far),
        SPLITS,
        HEADS,
        TILE,
        launch_pdl=chosen is not None,  # otherwise it follows the join with the compressor
        num_warps=8,
        num_stages=1,
    )


@triton.jit
def _combine(
    sums,
    peaks,
    positions,
    sinks,
    angles,
    angle_stride,
    ints,
    scales,
    rows,
    heads: tl.constexpr,
    width: tl.constexpr,
    rope: tl.constexpr,
    group_heads: tl.constexpr,
    window: tl.constexpr,
    ratio: tl.constexpr,
    topk: tl.constexpr,
    splits: tl.constexpr,
    tile: tl.constexpr,
    room: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    far = _far(tl.load(positions + row), ratio, topk)  # no launch of a step writes positions
    follow()
    parts = tl.minimum(tl.cdiv(window + far, tile), splits)
    head = tl.program_id(1)
    part = tl.arange(0, room)
    at = (row * splits + part) * heads + head
    peak = tl.load(peaks + at * 2, mask=part < parts, other=float("-inf"))
    total = tl.load(peaks + at * 2 + 1, mask=part < parts, other=0.0)
    sink = tl.load(sinks + head)
    top = tl.maximum(tl.max(peak, 0), sink)
    fade = tl.exp(peak - top)
    whole = tl.sum(total * fade, 0) + tl.exp(sink - top)
    column = tl.arange(0, width)
    turned = column >= width - rope
    shown = (part < parts)[:, None]
    share = (fade / whole)[:, None]
    out = tl.sum(share * tl.load(sums + at[:, None] * width + column[None, :], mask=shown, other=0.0), 0)
    mates = tl.load(
        sums + at[:, None] * width + (column ^ 1)[None, :], mask=shown & turned[None, :], other=0.0
    )
    other = tl.sum(share * mates, 0)
    out = rope_pair(out, -other, angles + row * angle_stride, width - rope, column)  # the way back
    group = (head // group_heads).to(tl.int64)
    inside = (head % group_heads) * width
    line = (group * rows + row) * (group_heads * width)
    grid = tl.reshape(out, (width // 256, 256))
    unit = split_scale(tl.max(tl.abs(grid), 1))
    block = tl.arange(0, width // 256)
    tl.store(scales + line // 256 + inside // 256 + block, unit)
    split_store(
        grid, unit[:, None], ints + line * 2, inside + block[:, None] * 256 + tl.arange(0, 256)[None, :]
    )


def combine(
    partial: Partial,
    positions: Tensor,
    far: Far | None,
    sinks: Tensor,
    angles: Tensor,
    out: Planes,
    *,
    window: int,
    rope: int,
    groups: int,
) -> None:
    """Planes [groups, M, width / 8, 16] of the output, rotated back; `sinks` [H] only take weight.

    `positions` int32 [M], `far` and `window` are those of `attend`.
    """
    rows, splits, heads, width = partial.sums.shape
    _combine[(rows, heads)](
        partial.sums,
        partial.peaks,
        positions,
        sinks,
        angles,
        angles.stride(0),
        out.ints,
        out.scales,
        rows,
        heads,
        width,
        rope,
        heads // groups,
        window,
        far.ratio if far else 0,
        _most(far),
        splits,
        TILE,
        triton.next_power_of_2(splits),
        launch_pdl=True,
        num_warps=8,
    )


def _most(far: Far | None) -> int:
    """Compressed rows that are chosen at most; 0 where all are seen."""
    return 0 if far is None or far.chosen is None else far.chosen.shape[1]
