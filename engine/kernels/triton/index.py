"""Indexer of a decode step: exact FP4 scores of a sequence's index rows.

Products of FP4 integers are exact whatever unit computes them; the two scales are powers of two; only the sum
over blocks and heads rounds, in a fixed order.  Rows of other sequences, and their number, play no part.
The choice is that of `engine.kernels.ref.index.select`: higher score first, lower row first among equals.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.chain import follow
from engine.kernels.triton.heads import Queries
from engine.kernels.triton.numbers import OPERAND
from engine.kernels.triton.rows import load_index, load_index_scales

TILE = 64  # rows of a score tile
PROGRAMS = 256  # programs a row of the step; each takes every 256th tile


@triton.jit
def _scores(
    codes,
    query_units,
    weights,
    weight_stride,
    positions,
    slots,
    pool,
    pages,
    page_stride,
    out,
    out_stride,
    heads: tl.constexpr,
    width: tl.constexpr,
    row_stride: tl.constexpr,
    topk: tl.constexpr,
    per_page: tl.constexpr,
    ratio: tl.constexpr,
    tile: tl.constexpr,
    factor,
):
    follow()
    row = tl.program_id(1).to(tl.int64)
    count = (tl.load(positions + row) + 1) // ratio
    if count > topk:
        table = pages + tl.load(slots + row).to(tl.int64) * page_stride
        head = tl.arange(0, heads)
        weight = tl.load(weights + row * weight_stride + head) * factor
        own = codes + row * heads * width + head[:, None] * width
        units = query_units + (row * heads + head) * (width // 32)
        column = tl.arange(0, 32)
        for at in range(tl.program_id(0), tl.cdiv(count, tile), tl.num_programs(0)):
            key = at * tile + tl.arange(0, tile)
            live = key < count
            page = tl.load(table + key // per_page, mask=live, other=0)
            line = (page * per_page + key % per_page).to(tl.int64)
            # Told in so many words: Triton 3.6 takes rows of 17 words for aligned where they follow each
            # other.
            line = pool + tl.max_contiguous(tl.multiple_of(line, 1), 1) * row_stride
            total = tl.zeros([heads, tile], tl.float32)
            scales = load_index_scales(line, live, width)
            for block in tl.static_range(width // 32):
                k, unit = load_index(line, live, scales, block, tile)
                dot = tl.dot(tl.load(own + block * 32 + column[None, :]).to(OPERAND), k)
                total += dot * tl.load(units + block)[:, None] * unit[None, :]
            score = tl.sum(tl.maximum(total, 0.0) * weight[:, None], 0)
            tl.store(out + row * out_stride + key, score, mask=live)


def scores(
    queries: Queries,
    weights: Tensor,
    places: tuple[Tensor, Tensor],
    pool: Tensor,
    pages: Tensor,
    out: Tensor,
    *,
    ratio: int,
    page_tokens: int,
    topk: int,
) -> None:
    """Scores `out` [M, R] of the index rows `pool` [rows, stored]: uint8, a whole number of
    words a row, or float32.

    `weights` [M, h] are raw; the architecture's factor (d h)^-1/2 enters here.  A token's rows are those of
    the windows it has closed; where there are at most `topk`, nothing is scored.  `places` are positions and
    slots int32 [M], `pages` int32 [slots, pages].
    """
    rows, heads, width = queries.codes.shape
    positions, slots = places
    stored = pool.view(torch.int32) if pool.dtype == torch.uint8 else pool
    _scores[(PROGRAMS, rows)](
        queries.codes,
        queries.scales,
        weights,
        weights.stride(0),
        positions,
        slots,
        stored,
        pages,
        pages.stride(0),
        out,
        out.stride(0),
        heads,
        width,
        stored.shape[-1],
        topk,
        page_tokens // ratio,
        ratio,
        TILE,
        (width * heads) ** -0.5,
        num_warps=4,
    )
