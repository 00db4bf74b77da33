"""Draws every row's next token on the device, by the rule of `engine.sampling` and with its random numbers.

Weights are whole numbers, the probabilities' ratios to the likeliest times a power of two, so every sum is
exact and neither tiles, nor the order of programs, nor other rows decide a token.  What top-k and top-p keep
is a prefix of the order of the logits: its end is searched for among all float32 numbers, a few bits a
launch.

Temperature 0 takes the likeliest token, the lowest id among equals; a row whose largest logit is not finite
gives -1.  Against the twin the same token, but where its float64 sums fall to the other side of an edge: a
drawn point or a share within some 2^-40 of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.chain import follow

TILE = 1024  # logits of a program
PIVOTS = 64  # candidates for the end of what is kept, compared in one launch
STEP = PIVOTS if triton.knobs.runtime.interpret else 8  # compared at a time, so that they fit in registers
SHIFTS = (26, 20, 14, 8, 2, 0)  # bits below those that each launch decides; 32 in all
MOST_VOCAB = 1 << 20  # so that weights keep 42 bits

_LOWEST = tl.constexpr(-(2**31))
_NOTHING = tl.constexpr(-(2**63))  # before every place with its token
_INFINITY = tl.constexpr(0x7F800000)  # its place in the order of the floats
_NONE = tl.constexpr(-0x7F800001)  # that of minus infinity


@dataclass(frozen=True, slots=True)
class Rules:
    """How each row is drawn: float64 [M] temperature, top_p and min_p, int32 [M] top_k, int64 [M] seed.

    As in `engine.core.SamplingParams`; `allowed` int32 [M, V / 32 rounded up] has a bit for every token that
    may be drawn.
    """

    temperature: Tensor
    top_p: Tensor
    min_p: Tensor
    top_k: Tensor
    seed: Tensor
    allowed: Tensor

    @classmethod
    def greedy(cls, rows: int, vocab: int, device: torch.device) -> Rules:
        """The likeliest of all tokens in every row."""
        zero, one = (torch.full((rows,), at, dtype=torch.float64, device=device) for at in (0.0, 1.0))
        return cls(
            zero,
            one,
            zero.clone(),
            torch.zeros(rows, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.full((rows, triton.cdiv(vocab, 32)), -1, dtype=torch.int32, device=device),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch leaves to the next, of M rows in T tiles.

    `keys` int32 [M, V] are the logits' places in the order of floats, `weights` int64 [M, V] their weights,
    `peaks` int64 [M, T] the largest of a tile with its id, `masses` int64 and `counts` int32 [M, launches,
    PIVOTS] what lies at or above each pivot, `ends` int32 [M, launches] where the search stands, `kept` int64
    [M, T] mass above the end, `above` and `ties` int32 [M, T] numbers of tokens above and at it, `drawn`
    int32 [M] tokens.
    """

    keys: Tensor
    weights: Tensor
    peaks: Tensor
    masses: Tensor
    counts: Tensor
    ends: Tensor
    kept: Tensor
    above: Tensor
    ties: Tensor
    drawn: Tensor

    @classmethod
    def empty(cls, rows: int, vocab: int, device: torch.device) -> Work:
        """Room for a step; ValueError for a vocabulary whose weights would have too few bits."""
        if vocab > MOST_VOCAB:
            raise ValueError(f"a vocabulary of {vocab} tokens; the sampler takes at most {MOST_VOCAB}")
        tiles, levels = triton.cdiv(vocab, TILE), len(SHIFTS)

        def zeros(kind: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(rows, *shape, dtype=kind, device=device)

        return cls(
            keys=zeros(torch.int32, vocab),
            weights=zeros(torch.int64, vocab),
            peaks=zeros(torch.int64, tiles),
            masses=zeros(torch.int64, levels, PIVOTS),
            counts=zeros(torch.int32, levels, PIVOTS),
            ends=zeros(torch.int32, levels),
            kept=zeros(torch.int64, tiles),
            above=zeros(torch.int32, tiles),
            ties=zeros(torch.int32, tiles),
            drawn=zeros(torch.int32),
        )


@triton.jit
def _place(x):
    """Place of a float32 among all, int32; both zeros have one, and whatever is no number comes last."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@triton.jit
def _logit(key):
    """The float32 at a place."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _peaks(
    logits, logit_stride, allowed, allowed_stride, keys, peaks, masses, counts,
    vocab: tl.constexpr, tiles: tl.constexpr, tile: tl.constexpr, levels: tl.constexpr, pivots: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = token < vocab
    x = tl.load(logits + row * logit_stride + token, mask=inside, other=0.0)
    word = tl.load(allowed + row * allowed_stride + token // 32, mask=inside, other=0)
    key = tl.where(((word >> (token % 32)) & 1) != 0, _place(x), _NONE)
    tl.store(keys + row * vocab + token, key, mask=inside)
    best = tl.where(inside, (key.to(tl.int64) << 32) | (0x7FFFFFFF - token), _NOTHING)
    tl.store(peaks + row * tiles + tl.program_id(0), tl.max(best, 0))
    if tl.program_id(0) == 0:
        for level in tl.static_range(levels):
            at = (row * levels + level) * pivots + tl.arange(0, pivots)
            tl.store(masses + at, tl.zeros([pivots], tl.int64))
            tl.store(counts + at, tl.zeros([pivots], tl.int32))


@triton.jit
def _peak(peaks, row, tiles: tl.constexpr, room: tl.constexpr):
    """The likeliest token's place and id."""
    tile = tl.arange(0, room)
    best = tl.max(tl.load(peaks + row * tiles + tile, mask=tile < tiles, other=_NOTHING), 0)
    return (best >> 32).to(tl.int32), 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _drawn(peaks, temperature, row, tiles: tl.constexpr, room: tl.constexpr):
    """Whether the row needs a draw at all: its temperature is above 0 and its largest logit is finite."""
    top, _ = _peak(peaks, row, tiles, room)
    return (tl.load(temperature + row) > 0.0) & (top > _NONE) & (top < _INFINITY)


@triton.jit
def _count(
    key, weight, end, masses, counts, shift: tl.constexpr, pivots: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """Add a tile's mass and number of tokens at or above each pivot `end` + b 2^shift."""
    for first in range(0, pivots, step):
        pivot = first + tl.arange(0, step)
        reached = key[None, :] >= (end + (pivot << shift))[:, None]
        number = tl.sum(reached.to(tl.int32), 1)
        mass = tl.sum(tl.where(reached, weight[None, :], 0), 1)
        tl.atomic_add(counts + pivot, number, mask=number > 0, sem="relaxed")
        tl.atomic_add(masses + pivot, mass, mask=mass > 0, sem="relaxed")


@triton.jit
def _wanted(masses, top_p, top_k, row, levels: tl.constexpr, pivots: tl.constexpr):
    """Mass and number of tokens, either of which is enough to be kept."""
    total = tl.load(masses + row * levels * pivots)  # of the first launch's lowest pivot: everything
    share = tl.load(top_p + row)
    mass = tl.ceil(tl.minimum(share, 1.0) * total.to(tl.float64)).to(tl.int64)
    mass = tl.where(share < 1.0, tl.maximum(tl.minimum(mass, total), 1), total)
    number = tl.load(top_k + row)
    return mass, tl.where(number > 0, number, 0x7FFFFFFF)


@triton.jit
def _settle(
    masses, counts, ends, top_p, top_k, row,
    level: tl.constexpr, shift: tl.constexpr, levels: tl.constexpr, pivots: tl.constexpr,
):  # fmt: skip
    """Where the search stands after a launch: its highest pivot at or above which enough lies."""
    mass, number = _wanted(masses, top_p, top_k, row, levels, pivots)
    pivot = tl.arange(0, pivots)
    at = (row * levels + level) * pivots + pivot
    enough = (tl.load(masses + at) >= mass) | (tl.load(counts + at) >= number)
    return tl.load(ends + row * levels + level) + (tl.max(tl.where(enough, pivot, 0), 0) << shift)


@triton.jit
def _weigh(
    keys, weights, peaks, temperature, min_p, masses, counts, ends,
    vocab: tl.constexpr, bits: tl.constexpr, tiles: tl.constexpr, room: tl.constexpr, tile: tl.constexpr,
    levels: tl.constexpr, shift: tl.constexpr, pivots: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(1).to(tl.int64)
    if _drawn(peaks, temperature, row, tiles, room):
        top, _ = _peak(peaks, row, tiles, room)
        token = tl.program_id(0) * tile + tl.arange(0, tile)
        inside = token < vocab
        key = tl.load(keys + row * vocab + token, mask=inside, other=_LOWEST)
        away = tl.where(inside, _logit(key), float("-inf")).to(tl.float64) - _logit(top).to(tl.float64)
        share = tl.exp(away / tl.load(temperature + row))
        share = tl.where(share < tl.load(min_p + row), 0.0, share)
        weight = (share * (1 << bits) + 0.5).to(tl.int64)
        tl.store(weights + row * vocab + token, weight, mask=inside)
        at = row * levels * pivots
        end = tl.full((), _LOWEST, tl.int32)
        _count(key, weight, end, masses + at, counts + at, shift, pivots, step)
        tl.store(ends + row * levels, end)


@triton.jit
def _narrow(
    keys, weights, peaks, temperature, top_p, top_k, masses, counts, ends,
    vocab: tl.constexpr, tiles: tl.constexpr, room: tl.constexpr, tile: tl.constexpr, level: tl.constexpr,
    before: tl.constexpr, shift: tl.constexpr, levels: tl.constexpr, pivots: tl.constexpr,
    used: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(1).to(tl.int64)
    if _drawn(peaks, temperature, row, tiles, room):
        end = _settle(masses, counts, ends, top_p, top_k, row, level - 1, before, levels, pivots)
        tl.store(ends + row * levels + level, end)  # every program stores the same
        token = tl.program_id(0) * tile + tl.arange(0, tile)
        inside = token < vocab
        key = tl.load(keys + row * vocab + token, mask=inside, other=_LOWEST)
        weight = tl.load(weights + row * vocab + token, mask=inside, other=0)
        at = (row * levels + level) * pivots
        _count(key, weight, end, masses + at, counts + at, shift, used, step)


@triton.jit
def _cut(
    keys, weights, peaks, temperature, top_p, top_k, masses, counts, ends, kept, above, ties,
    vocab: tl.constexpr, tiles: tl.constexpr, room: tl.constexpr, tile: tl.constexpr, levels: tl.constexpr,
    shift: tl.constexpr, pivots: tl.constexpr,
):  # fmt: skip
    follow()
    row = tl.program_id(1).to(tl.int64)
    if _drawn(peaks, temperature, row, tiles, room):
        end = _settle(masses, counts, ends, top_p, top_k, row, levels - 1, shift, levels, pivots)
        token = tl.program_id(0) * tile + tl.arange(0, tile)
        inside = token < vocab
        key = tl.load(keys + row * vocab + token, mask=inside, other=_LOWEST)
        weight = tl.load(weights + row * vocab + token, mask=inside, other=0)
        at = row * tiles + tl.program_id(0)
        tl.store(kept + at, tl.sum(tl.where(key > end, weight, 0), 0))
        tl.store(above + at, tl.sum((key > end).to(tl.int32), 0))
        tl.store(ties + at, tl.sum((inside & (key == end)).to(tl.int32), 0))


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
    top, token = _peak(peaks, row, tiles, room)
    if _drawn(peaks, temperature, row, tiles, room):
        end = _settle(masses, counts, ends, top_p, top_k, row, levels - 1, shift, levels, pivots)
        mass, number = _wanted(masses, top_p, top_k, row, levels, pivots)
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
        key = tl.load(keys + row * vocab + at, mask=at < vocab, other=_LOWEST)
        weight = tl.load(weights + row * vocab + at, mask=at < vocab, other=0)
        tie = ((at < vocab) & (key == end)).to(tl.int32)
        stays = (key > end) | ((tie > 0) & (tl.cumsum(tie, 0) <= room_left))
        weight = tl.where(stays, weight, 0)
        token = here * tile + tl.sum((tl.cumsum(weight, 0) <= point).to(tl.int32), 0)
    tl.store(drawn + row, tl.where((top > _NONE) & (top < _INFINITY), token, -1))


def sample(logits: Tensor, rules: Rules, positions: Tensor, work: Work) -> Tensor:
    """Tokens int32 [M] after the tokens at `positions` int32 [M], from float32 logits [M, V]."""
    rows, vocab = logits.shape
    tiles, levels = work.peaks.shape[1], len(SHIFTS)
    room, bits = triton.next_power_of_2(tiles), 62 - (vocab - 1).bit_length()
    search, shape = (work.masses, work.counts, work.ends), (vocab, tiles, room, TILE)
    row = (work.keys, work.weights, work.peaks, rules.temperature)
    _peaks[(tiles, rows)](
        logits, logits.stride(0), rules.allowed, rules.allowed.stride(0), work.keys, work.peaks,
        work.masses, work.counts, vocab, tiles, TILE, levels, PIVOTS, num_warps=8, launch_pdl=True,
    )  # fmt: skip
    _weigh[(tiles, rows)](
        *row, rules.min_p, *search, vocab, bits, tiles, room, TILE, levels, SHIFTS[0], PIVOTS, STEP,
        num_warps=8, launch_pdl=True,
    )  # fmt: skip
    limits = (rules.top_p, rules.top_k)
    for level, (before, shift) in enumerate(pairwise(SHIFTS), 1):
        used = 1 << (before - shift)
        _narrow[(tiles, rows)](
            *row, *limits, *search, *shape, level, before, shift, levels, PIVOTS, used, min(STEP, used),
            num_warps=8, launch_pdl=True,
        )  # fmt: skip
    parts = (work.kept, work.above, work.ties)
    _cut[(tiles, rows)](
        *row, *limits, *search, *parts, *shape, levels, SHIFTS[-1], PIVOTS, num_warps=8, launch_pdl=True
    )
    _pick[(rows,)](
        *row, *limits, rules.seed, positions, *search, *parts, work.drawn, *shape, levels, SHIFTS[-1],
        PIVOTS, num_warps=8, launch_pdl=True,
    )  # fmt: skip
    return work.drawn
