"""What may be drawn of each row: whole weights of its tokens, and the end of what top-k and top-p keep.

Weights are whole numbers, the probabilities' ratios to the likeliest times a power of two, so every sum is
exact and neither tiles, nor the order of programs, nor other rows decide a token.  What is kept is a prefix
of the order of the logits: its end is searched for among all float32 numbers, a few bits a launch.
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

LOWEST = tl.constexpr(-(2**31))
NOTHING = tl.constexpr(-(2**63))  # before every place with its token
INFINITY = tl.constexpr(0x7F800000)  # its place in the order of the floats
NONE = tl.constexpr(-0x7F800001)  # that of minus infinity


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
    key = tl.where(((word >> (token % 32)) & 1) != 0, _place(x), NONE)
    tl.store(keys + row * vocab + token, key, mask=inside)
    best = tl.where(inside, (key.to(tl.int64) << 32) | (0x7FFFFFFF - token), NOTHING)
    tl.store(peaks + row * tiles + tl.program_id(0), tl.max(best, 0))
    if tl.program_id(0) == 0:
        for level in tl.static_range(levels):
            at = (row * levels + level) * pivots + tl.arange(0, pivots)
            tl.store(masses + at, tl.zeros([pivots], tl.int64))
            tl.store(counts + at, tl.zeros([pivots], tl.int32))


@triton.jit
def peak(peaks, row, tiles: tl.constexpr, room: tl.constexpr):
    """The likeliest token's place and id."""
    tile = tl.arange(0, room)
    best = tl.max(tl.load(peaks + row * tiles + tile, mask=tile < tiles, other=NOTHING), 0)
    return (best >> 32).to(tl.int32), 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def draws(peaks, temperature, row, tiles: tl.constexpr, room: tl.constexpr):
    """Whether the row needs a draw at all: its temperature is above 0 and its largest logit is finite."""
    top, _ = peak(peaks, row, tiles, room)
    return (tl.load(temperature + row) > 0.0) & (top > NONE) & (top < INFINITY)


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
def wanted(masses, top_p, top_k, row, levels: tl.constexpr, pivots: tl.constexpr):
    """Mass and number of tokens, either of which is enough to be kept."""
    total = tl.load(masses + row * levels * pivots)  # of the first launch's lowest pivot: everything
    share = tl.load(top_p + row)
    mass = tl.ceil(tl.minimum(share, 1.0) * total.to(tl.float64)).to(tl.int64)
    mass = tl.where(share < 1.0, tl.maximum(tl.minimum(mass, total), 1), total)
    number = tl.load(top_k + row)
    return mass, tl.where(number > 0, number, 0x7FFFFFFF)


@triton.jit
def settle(
    masses, counts, ends, top_p, top_k, row,
    level: tl.constexpr, shift: tl.constexpr, levels: tl.constexpr, pivots: tl.constexpr,
):  # fmt: skip
    """Where the search stands after a launch: its highest pivot at or above which enough lies."""
    mass, number = wanted(masses, top_p, top_k, row, levels, pivots)
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
    if draws(peaks, temperature, row, tiles, room):
        top, _ = peak(peaks, row, tiles, room)
        token = tl.program_id(0) * tile + tl.arange(0, tile)
        inside = token < vocab
        key = tl.load(keys + row * vocab + token, mask=inside, other=LOWEST)
        away = tl.where(inside, _logit(key), float("-inf")).to(tl.float64) - _logit(top).to(tl.float64)
        share = tl.exp(away / tl.load(temperature + row))
        share = tl.where(share < tl.load(min_p + row), 0.0, share)
        weight = (share * (1 << bits) + 0.5).to(tl.int64)
        tl.store(weights + row * vocab + token, weight, mask=inside)
        at = row * levels * pivots
        end = tl.full((), LOWEST, tl.int32)
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
    if draws(peaks, temperature, row, tiles, room):
        end = settle(masses, counts, ends, top_p, top_k, row, level - 1, before, levels, pivots)
        tl.store(ends + row * levels + level, end)  # every program stores the same
        token = tl.program_id(0) * tile + tl.arange(0, tile)
        inside = token < vocab
        key = tl.load(keys + row * vocab + token, mask=inside, other=LOWEST)
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
    if draws(peaks, temperature, row, tiles, room):
        end = settle(masses, counts, ends, top_p, top_k, row, levels - 1, shift, levels, pivots)
        token = tl.program_id(0) * tile + tl.arange(0, tile)
        inside = token < vocab
        key = tl.load(keys + row * vocab + token, mask=inside, other=LOWEST)
        weight = tl.load(weights + row * vocab + token, mask=inside, other=0)
        at = row * tiles + tl.program_id(0)
        tl.store(kept + at, tl.sum(tl.where(key > end, weight, 0), 0))
        tl.store(above + at, tl.sum((key > end).to(tl.int32), 0))
        tl.store(ties + at, tl.sum((inside & (key == end)).to(tl.int32), 0))


def keep(logits: Tensor, rules: Rules, work: Work) -> None:
    """Weigh the tokens of float32 logits [M, V] and find where what is kept of each row ends."""
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
