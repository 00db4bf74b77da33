"""Indexer of a decode step: exact FP4 scores of a sequence's index rows, and the best of them.

Products of FP4 integers are exact whatever unit computes them; the two scales are powers of two; only the sum
over blocks and heads rounds, in a fixed order.  Rows of other sequences, and their number, play no part.
The choice is that of `engine.kernels.ref.index.select`: higher score first, lower row first among equals.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.heads import Queries
from engine.kernels.triton.numbers import OPERAND, fp4_double, power

TILE = 64  # rows of a score tile
PROGRAMS = 256  # programs a row of the step; each takes every 256th tile
CHUNK = 2048  # scores that one program chooses from
LEAST = -(2**31)  # key of a score that does not exist


@dataclass(frozen=True, slots=True)
class Choice:
    """Room for scores [M, R], the candidates of each chunk [M, C, K] with their keys, and chosen rows [M,
    K]."""

    scores: Tensor
    keys: Tensor
    candidates: Tensor
    chosen: Tensor

    @classmethod
    def empty(cls, rows: int, most: int, topk: int, device: torch.device) -> Choice:
        """Room for `most` index rows a sequence."""
        chunks = triton.cdiv(most, CHUNK)

        def integers(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        scores = torch.zeros(rows, chunks * CHUNK, device=device)
        return cls(scores, integers(rows, chunks, topk), integers(rows, chunks, topk), integers(rows, topk))


@triton.jit
def _scores(
    codes,
    scales,
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
    topk: tl.constexpr,
    per_page: tl.constexpr,
    ratio: tl.constexpr,
    tile: tl.constexpr,
    factor,
):
    row = tl.program_id(1).to(tl.int64)
    count = (tl.load(positions + row) + 1) // ratio
    if count > topk:
        table = pages + tl.load(slots + row).to(tl.int64) * page_stride
        head = tl.arange(0, heads)
        weight = tl.load(weights + row * weight_stride + head) * factor
        own = codes + row * heads * width + head[:, None] * width
        units = scales + (row * heads + head) * (width // 32)
        word, nibble, column = tl.arange(0, 4), tl.arange(0, 8), tl.arange(0, 32)
        for at in range(tl.program_id(0), tl.cdiv(count, tile), tl.num_programs(0)):
            key = at * tile + tl.arange(0, tile)
            live = key < count
            page = tl.load(table + key // per_page, mask=live, other=0)
            line = (page * per_page + key % per_page).to(tl.int64)
            # Told in so many words: Triton 3.6 takes rows of 17 words for aligned where they follow each
            # other.
            line = pool + tl.max_contiguous(tl.multiple_of(line, 1), 1) * (width // 8 + 1)
            total = tl.zeros([heads, tile], tl.float32)
            exponents = tl.load(line + width // 8, mask=live, other=0)
            for block in tl.static_range(width // 32):
                packed = tl.load(line[None, :] + block * 4 + word[:, None], mask=live[None, :], other=0)
                nibbles = (packed[:, None, :] >> (4 * nibble[None, :, None])) & 15
                k = tl.reshape(fp4_double(nibbles).to(OPERAND), (32, tile))
                dot = tl.dot(tl.load(own + block * 32 + column[None, :]).to(OPERAND), k)
                exponent = ((exponents >> (8 * block)) & 255) - 127
                total += dot * tl.load(units + block)[:, None] * (power(exponent) * 0.5)[None, :]
            score = tl.sum(tl.maximum(total, 0.0) * weight[:, None], 0)
            tl.store(out + row * out_stride + key, score, mask=live)


@triton.jit
def _key(score):
    """Signed integers in the order of the scores."""
    bits = score.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _best(key, k):
    """Mask of the k largest keys, lowest place first among equals; all that exist where there are not k.

    Finds the k-th largest a byte at a time, by counting how many keys that still tie have each value.
    """
    bits = (key ^ -2147483648).to(tl.uint32, bitcast=True)
    room = tl.sum(tl.zeros([1], tl.int32), 0) + k
    least = tl.sum(tl.zeros([1], tl.int32), 0).to(tl.uint32)
    byte = tl.arange(0, 256)
    for part in tl.static_range(4):
        digit = ((bits >> (24 - 8 * part)) & 255).to(tl.int32)
        tied = bits > 0
        if part > 0:
            tied = tied & ((bits >> (32 - 8 * part)) == (least >> (32 - 8 * part)))
        count = tl.histogram(digit, 256, tied)
        reached = tl.sum(count, 0) - tl.cumsum(count, 0) + count  # keys with this byte or a higher one
        chosen = tl.max(tl.where(reached >= room, byte, 0), 0)
        room -= tl.sum(tl.where(byte > chosen, count, 0), 0)
        least = least | (chosen.to(tl.uint32) << (24 - 8 * part))
    equal = (bits == least) & (bits > 0)
    return (bits > least) | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= room))


@triton.jit
def _narrow(
    scores,
    score_stride,
    positions,
    keys,
    candidates,
    ratio: tl.constexpr,
    topk: tl.constexpr,
    chunk: tl.constexpr,
):
    """The best rows of one chunk, ascending, the rest of the room filled with keys that do not exist."""
    row = tl.program_id(1).to(tl.int64)
    count = (tl.load(positions + row) + 1) // ratio
    start = tl.program_id(0) * chunk
    if (count > topk) & (start < count):
        place = start + tl.arange(0, chunk)
        live = place < count
        key = tl.where(
            live, _key(tl.load(scores + row * score_stride + place, mask=live, other=0.0)), -2147483648
        )
        best = _best(key, topk)
        rank = tl.cumsum(best.to(tl.int32), 0) - 1
        to = (row * tl.num_programs(0) + tl.program_id(0)) * topk
        tl.store(candidates + to + rank, place, mask=best)
        tl.store(keys + to + rank, key, mask=best)
        kept = tl.sum(best.to(tl.int32), 0)
        free = tl.arange(0, topk)
        tl.store(keys + to + free, tl.full([topk], -2147483648, tl.int32), mask=free >= kept)


@triton.jit
def _merge(keys, candidates, out, live_count, topk: tl.constexpr, most: tl.constexpr):
    """The best of all chunks' candidates."""
    place = tl.arange(0, most)
    live = place < live_count
    key = tl.load(keys + place, mask=live, other=-2147483648)
    best = _best(key, topk)
    rank = tl.cumsum(best.to(tl.int32), 0) - 1
    tl.store(out + rank, tl.load(candidates + place, mask=live, other=0), mask=best)


@triton.jit
def _choose(
    positions,
    keys,
    candidates,
    chosen,
    stride,
    ratio: tl.constexpr,
    topk: tl.constexpr,
    chunk: tl.constexpr,
    most: tl.constexpr,
):
    """The chosen rows of a sequence; every row where there are not more than k."""
    row = tl.program_id(0).to(tl.int64)
    count = (tl.load(positions + row) + 1) // ratio
    out = chosen + row * topk
    place = tl.arange(0, topk)
    if count <= topk:
        tl.store(out + place, place)
    elif count <= chunk:
        tl.store(out + place, tl.load(candidates + row * stride + place))
    else:
        _merge(keys + row * stride, candidates + row * stride, out, tl.cdiv(count, chunk) * topk, topk, most)


def select(
    queries: Queries,
    weights: Tensor,
    places: tuple[Tensor, Tensor],
    pool: Tensor,
    pages: Tensor,
    out: Choice,
    *,
    ratio: int,
    page_tokens: int,
) -> None:
    """Score index rows `pool` uint8 [rows, bytes of a whole number of words] through `pages` [slots, pages]
    and choose into `out.chosen` [M, K].

    `weights` [M, h] are raw; the architecture's factor (d h)^-1/2 enters here.  Rows of a token are those
    whose window it has closed.  `places` are positions and slots int32 [M].
    """
    rows, heads, width = queries.codes.shape
    topk, stride = out.chosen.shape[1], out.scores.stride(0)
    chunks = out.keys.shape[1]
    positions, slots = places
    _scores[(PROGRAMS, rows)](
        queries.codes,
        queries.scales,
        weights,
        weights.stride(0),
        positions,
        slots,
        pool.view(torch.int32),
        pages,
        pages.stride(0),
        out.scores,
        stride,
        heads,
        width,
        topk,
        page_tokens // ratio,
        ratio,
        TILE,
        (width * heads) ** -0.5,
        num_warps=4,
    )
    _narrow[(chunks, rows)](
        out.scores, stride, positions, out.keys, out.candidates, ratio, topk, CHUNK, num_warps=4
    )
    most = triton.next_power_of_2(chunks * topk)
    _choose[(rows,)](
        positions,
        out.keys,
        out.candidates,
        out.chosen,
        out.keys.stride(0),
        ratio,
        topk,
        CHUNK,
        most,
        num_warps=16,
    )
