"""Draws every row's next token on the device, by the rule of `engine.sampling` and with its random numbers.

Temperature 0 takes the likeliest token, the lowest id among equals; a row whose largest logit is not finite
gives -1.  Against the twin the same token, but where its float64 sums fall to the other side of an edge: a
drawn point or a share within some 2^-40 of it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.chain import follow
from engine.kernels.triton.nucleus import (
    INFINITY,
    LOWEST,
    NONE,
    PIVOTS,
    SHIFTS,
    TILE,
    Rules,
    Work,
    draws,
    keep,
    peak,
    settle,
    wanted,
)


@triton.jit
def _round(c0, c1, c2, c3, k0, k1):
    """One round of Philox 4x64."""
    first = tl.full((), 0xD2E7470EE14C6C93, tl.uint64)
    second = tl.full((), 0xCA5A826395121157, tl.uint64)
    return (
        tl.umulhi(second, c2) ^ c1 ^ k0,
        second * c2,
        tl.umulhi(first, c0) ^ c3 ^ k1,
        first * c0,
    )


@triton.jit
def _random(seed, position):
    """Bits of the number in [0, 1) of (seed, position), as a fraction of 2^64 whose last eleven are zero."""
    zero = tl.full((), 0, tl.uint64)
    c0, c1, c2, c3 = position.to(tl.uint64) + 1, zero, zero, zero  # NumPy counts before it draws
    k0, k1 = seed.to(tl.uint64, bitcast=True), zero
    for _ in tl.static_range(10):
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
        k0 += tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
        k1 += tl.full((), 0xBB67AE8584CAA73B, tl.uint64)
    return (c0 >> 11) << 11


@triton.jit
def _point(seed, positions, row, total):
    """The drawn point of the whole mass: below `total`, and exactly its share."""
    share = _random(tl.load(seed + row), tl.load(positions + row) + 1)
    return tl.umulhi(share, total.to(tl.uint64)).to(tl.int64)


@triton.jit
def _pick(
    keys, weights, peaks, temperature, top_p, top_k, seed, positions, masses, counts, ends, kept, above, ties,
    drawn, vocab: tl.constexpr, tiles: tl.constexpr, room: tl.constexpr, tile: tl.constexpr,
    levels: tl.constexpr, shift: tl.constexpr, pivots: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(0).to(tl.int64)
    top, token = peak(peaks, row, tiles, room)
    if draws(peaks, temperature, row, tiles, room):
        end = settle(masses, counts, ends, top_p, top_k, row, levels - 1, shift, levels, pivots)
        mass, number = wanted(masses, top_p, top_k, row, levels, pivots)
        lane = tl.arange(0, room)
        own = tl.load(kept + row * tiles + lane, mask=lane < tiles, other=0)
        equal = tl.load(ties + row * tiles + lane, mask=lane < tiles, other=0)
        higher = tl.sum(tl.load(above + row * tiles + lane, mask=lane < tiles, other=0), 0)
        # The tokens at the end weigh all the same; as many stay as are wanted, those of the lowest ids.
        last = row * levels + levels - 1
        reached = tl.load(masses + last * pivots + end - tl.load(ends + last))
        each = tl.maximum((reached - tl.sum(own, 0)) // tl.maximum(tl.sum(equal, 0), 1), 1)
        stay = tl.minimum((mass - tl.sum(own, 0) + each - 1) // each, (number - higher).to(tl.int64))
        staying = tl.minimum(tl.maximum(stay - (tl.cumsum(equal, 0) - equal), 0), equal.to(tl.int64))
        own += staying * each
        point = _point(seed, positions, row, tl.sum(own, 0))
        through = tl.cumsum(own, 0)
        here = tl.sum((through <= point).to(tl.int32), 0)
        point -= tl.sum(tl.where(lane == here, through - own, 0), 0)
        room_left = tl.sum(tl.where(lane == here, staying, 0), 0)
        at = here * tile + tl.arange(0, tile)
        key = tl.load(keys + row * vocab + at, mask=at < vocab, other=LOWEST)
        weight = tl.load(weights + row * vocab + at, mask=at < vocab, other=0)
        tie = ((at < vocab) & (key == end)).to(tl.int32)
        stays = (key > end) | ((tie > 0) & (tl.cumsum(tie, 0) <= room_left))
        weight = tl.where(stays, weight, 0)
        token = here * tile + tl.sum((tl.cumsum(weight, 0) <= point).to(tl.int32), 0)
    tl.store(drawn + row, tl.where((top > NONE) & (top < INFINITY), token, -1))


def sample(logits: Tensor, rules: Rules, positions: Tensor, work: Work) -> Tensor:
    """Tokens int32 [M] after the tokens at `positions` int32 [M], from float32 logits [M, V]."""
    keep(logits, rules, work)
    rows, vocab = logits.shape
    tiles = work.peaks.shape[1]
    _pick[(rows,)](
        work.keys, work.weights, work.peaks, rules.temperature, rules.top_p, rules.top_k, rules.seed,
        positions, work.masses, work.counts, work.ends, work.kept, work.above, work.ties, work.drawn,
        vocab, tiles, triton.next_power_of_2(tiles), TILE, len(SHIFTS), SHIFTS[-1], PIVOTS,
        num_warps=8, launch_pdl=True,
    )  # fmt: skip
    return work.drawn
