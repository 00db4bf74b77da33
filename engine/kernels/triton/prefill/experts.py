"""Routed experts of a chunk: choice, grouping by expert on the device, and the two grouped products.

Two-bit weights are expanded in the kernel, once a tile of rows, straight into the operand of a float16
matrix product; scale and value each round to float16 once, at 64 times their size to stay off its small end.
Nothing waits for the host: tiles of an upper bound are launched, those without rows return at once.
Twins: `engine.kernels.ref.moe`, `layouts.decode_iq2`, `layouts.decode_q2`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gguf.quants import iq2_codewords
from engine.kernels.layouts import IQ2, Q2
from engine.kernels.triton.numbers import narrow
from engine.kernels.triton.prefill.card import roomy
from engine.kernels.triton.route import FLOOR, router_score


@dataclass(frozen=True, slots=True)
class Tile:
    """Matrix rows (of the first matrix half gate rows, half their up rows) and most tokens of a program."""

    lines: int
    tokens: int


def tile(device: torch.device) -> Tile:
    """Larger tiles where a block may have more shared memory."""
    return Tile(128, 128) if roomy(device) else Tile(64, 64)


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen experts int32 [T, K], ascending, and their weights float32 [T, K]."""

    experts: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True)
class Groups:
    """Slots t K + k in the order of their experts, and tiles of at most `height` slots of one expert.

    `order` int32 [T K]; `expert`, `start`, `stop` int32 [tiles]: an unused tile has start = stop.
    """

    order: Tensor
    expert: Tensor
    start: Tensor
    stop: Tensor
    height: int


@triton.jit
def _route(
    logits, bias, table, ids, experts, weights, tokens, scale: tl.constexpr,
    count: tl.constexpr, k: tl.constexpr, hashed: tl.constexpr, pad: tl.constexpr,
    lines: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    live = line < tokens
    expert = tl.arange(0, pad)
    inside = live[:, None] & (expert < count)[None, :]
    score = router_score(tl.load(logits + line[:, None] * count + expert[None, :], mask=inside, other=0.0))
    taken = tl.zeros((lines, pad), tl.int32)
    if hashed:
        row = table + tl.load(ids + line, mask=live, other=0).to(tl.int64) * k
        for slot in tl.static_range(k):
            taken = tl.where(expert[None, :] == tl.load(row + slot)[:, None], 1, taken)
    else:
        rank = score + tl.load(bias + expert, mask=expert < count, other=0.0)[None, :]
        rank = tl.where((expert < count)[None, :], rank, float("-inf"))
        for _ in tl.static_range(k):
            best = tl.argmax(rank, 1, tie_break_left=True)
            mine = expert[None, :] == best[:, None]
            taken = tl.where(mine, 1, taken)
            rank = tl.where(mine, float("-inf"), rank)
    total = tl.sum(tl.where(taken > 0, score, 0.0), 1)
    place = line[:, None] * k + tl.cumsum(taken, 1) - 1
    mask = live[:, None] & (taken > 0)
    tl.store(experts + place, expert[None, :] + tl.zeros((lines, pad), tl.int32), mask=mask)
    weight = score / tl.maximum(total, FLOOR)[:, None] * scale
    tl.store(weights + place, weight, mask=mask)


def route(logits: Tensor, k: int, scale: float, *, bias: Tensor | None = None, table: Tensor | None = None,
          ids: Tensor | None = None) -> Choice:  # fmt: skip
    """Choose by `bias` [E] added to the scores, or by `table` int32 [V, k] and token ids [T].

    The same experts as the twin for equal logits but at ties of the last bit; weights 1e-5 relative.
    """
    tokens, count = logits.shape
    experts = torch.empty(tokens, k, dtype=torch.int32, device=logits.device)
    weights = torch.empty(tokens, k, device=logits.device)
    lines = 8
    _route[(triton.cdiv(tokens, lines),)](
        logits, logits if bias is None else bias, logits if table is None else table,
        logits if ids is None else ids, experts, weights, tokens, scale, count, k, table is not None,
        triton.next_power_of_2(count), lines,
    )  # fmt: skip
    return Choice(experts, weights)


def group(choice: Choice, count: int) -> Groups:
    """Sort slots by expert, of `count` experts, and lay tiles over them; all on the device, no host wait."""
    flat = choice.experts.flatten()
    device, slots = flat.device, len(flat)
    by_expert, order = flat.sort(stable=True)
    bounds = torch.searchsorted(
        by_expert, torch.arange(count + 1, dtype=torch.int32, device=device), out_int32=True
    )
    height = _height(slots, count, tile(device).tokens)
    tiles = torch.div(bounds[1:] - bounds[:-1] + height - 1, height, rounding_mode="floor")
    ends = tiles.cumsum(0)
    number = torch.arange(min(slots, slots // height + count), device=device)
    expert = torch.searchsorted(ends, number, right=True).clamp_(max=count - 1)
    start = bounds[expert] + (number - ends[expert] + tiles[expert]) * height
    stop = torch.minimum(bounds[expert + 1], start + height).int()
    start = torch.minimum(start, stop).int()
    return Groups(order.int(), expert.int(), start, torch.maximum(start, stop), height)


def _height(slots: int, count: int, most: int) -> int:
    """Rows of a tile: enough for an expert with a sixth more rows than the mean."""
    return min(most, max(16, int(triton.next_power_of_2(slots * 7 // (count * 6) + 1))))


@triton.jit
def _minors(words, half, below):
    """Scales [1, lines] of groups 4 half .. 4 half + 3, a byte each; `below` is 1 in a tile's last rows."""
    at = (words - below * 128 + (2 * below + half) * 4 + 2)[None, :]  # bits 3, 2 in row g, 1, 0 in row g + 8
    scales = (tl.load(at) >> 4 & 0x08080808) | (tl.load(at + 1) >> 5 & 0x04040404)
    return scales | (tl.load(at + 128) >> 6 & 0x02020202) | (tl.load(at + 129) >> 7 & 0x01010101)


@triton.jit
def _iq2(words, scales, half, below, table, lines: tl.constexpr):
    """Half a block of rows, as columns of float16 [128, lines], times 64; pointers [lines] to the planes.

    Octet o is lane o % 4 of group 4 half + o // 4.  `below` [lines] is 1 in rows 8 .. 15 of a tile.
    """
    octet = tl.arange(0, 16)
    lane = octet % 4
    group = octet // 4
    books = tl.load(words[None, :] + (lane * 4 + half)[:, None])
    halves = tl.load(words[None, :] + (lane * 4 + 2 + half)[:, None])
    minors = _minors(words, half, below) >> (8 * group)[:, None] & 15
    code = (books >> (8 * group)[:, None]) & 255
    sign = (halves >> (8 * group)[:, None]) & 127
    odd = sign ^ (sign >> 4)
    odd = odd ^ (odd >> 2)
    sign = sign | (((odd ^ (odd >> 1)) & 1) << 7)
    scale = (minors * 2 + 1).to(tl.float32) * (tl.load(scales).to(tl.float32) * 8.0)[None, :]
    value = tl.arange(0, 8)
    magnitude = tl.load(table + code[:, :, None] * 8 + value[None, None, :])
    weight = (magnitude * scale.to(tl.float16)[:, :, None]).to(tl.int16, bitcast=True)
    flip = ((sign[:, :, None] << (15 - value)[None, None, :]) & 0x8000).to(tl.int16)
    return _columns((weight ^ flip).to(tl.float16, bitcast=True), lines)


@triton.jit
def _columns(octets, lines: tl.constexpr):
    """Octets [16, lines, 8] as columns [128, lines]."""
    return tl.reshape(tl.permute(octets, (0, 2, 1)), (128, lines))


@triton.jit
def _both(program, inner: tl.constexpr, lines: tl.constexpr):
    """Matrix rows [lines] of a program: half of them gate rows, then the up rows of the same units."""
    half: tl.constexpr = lines // 2
    line = tl.arange(0, lines)
    return line // half * inner + program * half + line % half


@triton.jit
def _units(sums, weight, limit: tl.constexpr, lines: tl.constexpr, height: tl.constexpr):
    """Weighted gated units [height, lines / 2] of sums [height, lines] in the order of `_both`, 64 times."""
    gate, up = tl.split(tl.permute(tl.reshape(sums, (height, 2, lines // 2)), (0, 2, 1)))
    gate = tl.minimum(gate * 0.015625, limit)
    up = tl.minimum(tl.maximum(up * 0.015625, -limit), limit)
    return gate * tl.sigmoid(gate) * up * weight[:, None]


@triton.jit
def _enter(
    x, order, slot_weights, words, scales, table,
    experts, starts, stops, out, limit: tl.constexpr, k: tl.constexpr,
    hidden: tl.constexpr, inner: tl.constexpr, lines: tl.constexpr, height: tl.constexpr,
):  # fmt: skip
    start = tl.load(starts + tl.program_id(1))
    stop = tl.load(stops + tl.program_id(1))
    if start < stop:
        expert = tl.load(experts + tl.program_id(1)).to(tl.int64)
        blocks: tl.constexpr = hidden // 256
        half: tl.constexpr = lines // 2
        place = start + tl.arange(0, height)
        live = place < stop
        slot = tl.load(order + place, mask=live, other=0)
        row = (slot // k).to(tl.int64)
        line = _both(tl.program_id(0), inner, lines)
        first = expert * (2 * inner) + line
        below = first // 8 % 2
        first = first // 16 * (blocks * 16) + first % 16  # 16 rows of a block lie together
        column = tl.arange(0, 128)
        sums = tl.zeros((height, lines), tl.float32)
        for step in range(hidden // 128):
            rows = tl.load(x + row[:, None] * hidden + step * 128 + column[None, :])
            at = first + step // 2 * 16
            sums = tl.dot(rows, _iq2(words + at * 16, scales + at, step % 2, below, table, lines), sums)
        weight = tl.load(slot_weights + slot, mask=live, other=0.0)
        result = _units(sums, weight, limit, lines, height)
        to = tl.program_id(0) * half + tl.arange(0, half)
        tl.store(
            out + place.to(tl.int64)[:, None] * inner + to[None, :], result.to(tl.float16), mask=live[:, None]
        )


def enter(x: Tensor, choice: Choice, groups: Groups, matrix: IQ2, table: Tensor, limit: float) -> Tensor:
    """Gated units float16 [T K, F], in the order of `groups`, of rows float16 [T, C], weighted.

    `matrix` holds gate rows, then up rows, of every expert: [E, 2 F, C].  Against the twin: 2e-3 relative.
    """
    k, hidden = choice.experts.shape[1], x.shape[1]
    inner = matrix.scales.shape[1] * 8
    lines = tile(x.device).lines
    out = torch.empty(len(groups.order), inner, dtype=torch.float16, device=x.device)
    _enter[(2 * inner // lines, len(groups.expert))](
        x, groups.order, choice.weights, matrix.words, matrix.scales, table, groups.expert, groups.start,
        groups.stop, out, limit, k, hidden, inner, lines, groups.height, num_warps=8, num_stages=2,
    )  # fmt: skip
    return out


@triton.jit
def _enter_expanded(
    x, order, slot_weights, weights, first, count, experts, starts, stops, out, limit: tl.constexpr,
    k: tl.constexpr, hidden: tl.constexpr, inner: tl.constexpr, lines: tl.constexpr, height: tl.constexpr,
    depth: tl.constexpr,
):  # fmt: skip
    start = tl.load(starts + tl.program_id(1))
    stop = tl.load(stops + tl.program_id(1))
    expert = tl.load(experts + tl.program_id(1)) - first
    if (start < stop) & (expert >= 0) & (expert < count):
        half: tl.constexpr = lines // 2
        place = start + tl.arange(0, height)
        live = place < stop
        slot = tl.load(order + place, mask=live, other=0)
        row = (slot // k).to(tl.int64)
        line = _both(tl.program_id(0), inner, lines)
        column = tl.arange(0, depth)
        at_x = x + row[:, None] * hidden + column[None, :]
        at_w = weights + (expert.to(tl.int64) * 2 * inner + line)[None, :] * hidden + column[:, None]
        sums = tl.zeros((height, lines), tl.float32)
        for step in range(hidden // depth):
            sums = tl.dot(tl.load(at_x + step * depth), tl.load(at_w + step * depth), sums)
        weight = tl.load(slot_weights + slot, mask=live, other=0.0)
        result = _units(sums, weight, limit, lines, height)
        to = tl.program_id(0) * half + tl.arange(0, half)
        at_out = out + place.to(tl.int64)[:, None] * inner + to[None, :]
        tl.store(at_out, result.to(tl.float16), mask=live[:, None])


def enter_expanded(
    x: Tensor, choice: Choice, groups: Groups, weights: Tensor, first: int, limit: float, out: Tensor
) -> None:
    """The part of `enter` that belongs to the experts `first` .. of `weights` float16 [n, 2 F, C], 64
    times."""
    k, hidden = choice.experts.shape[1], x.shape[1]
    lines = tile(x.device).lines
    _enter_expanded[(weights.shape[1] // lines, len(groups.expert))](
        x, groups.order, choice.weights, weights, first, len(weights), groups.expert, groups.start,
        groups.stop, out, limit, k, hidden, weights.shape[1] // 2, lines, groups.height, 64,
        num_warps=8, num_stages=3,
    )  # fmt: skip


@triton.jit
def _q2(words, minors, scales, half, lines: tl.constexpr):
    """Half a block of rows, as columns of float16 [128, lines], times 64; pointers [lines] to the planes."""
    octet = tl.arange(0, 16)
    lane = octet % 4
    step = octet // 4
    value = tl.arange(0, 8)
    packed = tl.load(words[None, :] + (lane * 4 + 2 * half + step // 2)[:, None])
    packed = packed >> (4 * (step % 2))[:, None]
    code = (packed[:, :, None] >> (2 * (value // 4) + 8 * (value % 4))[None, None, :]) & 3
    minor = tl.load(minors[None, :] + (8 * (lane // 2) + 4 * half + step)[:, None]).to(tl.int32)
    scale = (minor & 15).to(tl.float32) * (tl.load(scales).to(tl.float32) * 64.0)[None, :]
    low = (minor >> 4).to(tl.float32) * (tl.load(scales + 1).to(tl.float32) * 64.0)[None, :]
    number = (code | 0x6400).to(tl.int16).to(tl.float16, bitcast=True) - 1024.0  # 0x6400 is 1024 in float16
    weight = number * scale.to(tl.float16)[:, :, None] - low.to(tl.float16)[:, :, None]
    return _columns(weight, lines)


@triton.jit
def _leave(
    x, order, words, minors, scales, experts,
    starts, stops, out, hidden: tl.constexpr, inner: tl.constexpr,
    lines: tl.constexpr, height: tl.constexpr,
):  # fmt: skip
    start = tl.load(starts + tl.program_id(1))
    stop = tl.load(stops + tl.program_id(1))
    if start < stop:
        expert = tl.load(experts + tl.program_id(1)).to(tl.int64)
        blocks: tl.constexpr = inner // 256
        place = start + tl.arange(0, height)
        live = place < stop
        row = tl.where(live, place, start).to(tl.int64)
        to = tl.program_id(0) * lines + tl.arange(0, lines)
        first = expert * hidden + to
        first = first // 16 * (blocks * 16) + first % 16  # 16 rows of a block lie together
        column = tl.arange(0, 128)
        sums = tl.zeros((height, lines), tl.float32)
        for step in range(inner // 128):
            at = first + step // 2 * 16
            rows = tl.load(x + row[:, None] * inner + step * 128 + column[None, :])
            sums = tl.dot(
                rows, _q2(words + at * 16, minors + at * 16, scales + at * 2, step % 2, lines), sums
            )
        slot = tl.load(order + place, mask=live, other=0).to(tl.int64)
        target = out + slot[:, None] * hidden + to[None, :]
        tl.store(target, narrow(sums * 0.015625), mask=live[:, None])


def leave(x: Tensor, groups: Groups, matrix: Q2) -> Tensor:
    """Outputs BF16 [T K, C], by slot t K + k, of gated units [T K, F] in the order of `groups`.

    `matrix` is [E, C, F].  Against the twin: one BF16 step and 1e-3 of the largest value.
    """
    hidden, inner = matrix.scales.shape[1] * 16, x.shape[1]
    lines = tile(x.device).lines
    out = torch.empty(len(x), hidden, dtype=torch.bfloat16, device=x.device)
    _leave[(hidden // lines, len(groups.expert))](
        x, groups.order, matrix.words, matrix.minors, matrix.scales, groups.expert, groups.start, groups.stop,
        out, hidden, inner, lines, groups.height, num_warps=8, num_stages=2,
    )  # fmt: skip
    return out


def codebook(device: torch.device) -> Tensor:
    """Magnitudes of the 256 codewords, float16 [256, 8]: 4 KiB that stay in the first cache."""
    return torch.from_numpy(iq2_codewords().copy()).to(device, torch.float16)
