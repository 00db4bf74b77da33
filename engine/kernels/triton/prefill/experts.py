"""Routed experts of a chunk: choice, grouping by expert on the device, and the two grouped products.

Two-bit weights are expanded in the kernel, once a tile of rows, straight into the operand of a float16
matrix product: IQ2_XXS as exact integers with the block's scale outside, Q2_K rounded to float16 once.
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
from engine.kernels.triton.prefill.tiles import narrow

ENTER_TILE = 64  # gate rows, and as many up rows, of one program
LEAVE_TILE = 128  # rows of the second matrix
MOST_ROWS = 128  # tokens of one program


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
def _score(logits: tl.tensor) -> tl.tensor:
    """sqrt(softplus(x))."""
    soft = tl.maximum(logits, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(logits)))
    return tl.sqrt(tl.where(logits > 20.0, logits, soft))


@triton.jit
def _route(
    logits: tl.tensor, bias: tl.tensor, table: tl.tensor, ids: tl.tensor, experts: tl.tensor, weights: tl.tensor, tokens: tl.tensor, scale: tl.constexpr,
    count: tl.constexpr, k: tl.constexpr, hashed: tl.constexpr, pad: tl.constexpr,
    lines: tl.constexpr,
) -> None:  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    live = line < tokens
    expert = tl.arange(0, pad)
    inside = live[:, None] & (expert < count)[None, :]
    score = _score(tl.load(logits + line[:, None] * count + expert[None, :], mask=inside, other=0.0))
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
    weight = score / tl.maximum(total, 6.103515625e-05)[:, None] * scale  # floor 2^-14
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
    bounds = torch.searchsorted(by_expert, torch.arange(count + 1, dtype=torch.int32, device=device), out_int32=True)
    height = _height(slots, count)
    tiles = torch.div(bounds[1:] - bounds[:-1] + height - 1, height, rounding_mode="floor")
    ends = tiles.cumsum(0)
    number = torch.arange(min(slots, slots // height + count), device=device)
    expert = torch.searchsorted(ends, number, right=True).clamp_(max=count - 1)
    start = bounds[expert] + (number - ends[expert] + tiles[expert]) * height
    stop = torch.minimum(bounds[expert + 1], start + height).int()
    start = torch.minimum(start, stop).int()
    return Groups(order.int(), expert.int(), start, torch.maximum(start, stop), height)


def _height(slots: int, count: int) -> int:
    """Rows of a tile: enough for an expert with a sixth more rows than the mean."""
    return min(MOST_ROWS, max(16, triton.next_power_of_2(slots * 7 // (count * 6) + 1)))


@triton.jit
def _iq2(base: tl.tensor, half: tl.tensor, table: tl.tensor, lines: tl.constexpr) -> tl.tensor:
    """Half a block of rows as integers in float16 [lines, 128]: sign * magnitude * (2 scale + 1).

    `base` [lines] points at the blocks' words; octet o is lane o % 4 of group 4 half + o // 4.
    """
    octet = tl.arange(0, 16)
    lane = octet % 4
    group = octet // 4
    books = tl.load(base[:, None] + (lane * 4 + half)[None, :])
    halves = tl.load(base[:, None] + (lane * 4 + 2 + half)[None, :])
    minors = tl.load(base[:, None] + ((2 * half + group // 2) * 4 + 2 + group % 2)[None, :])
    code = (books >> (8 * group)[None, :]) & 255
    sign = (halves >> (7 * group)[None, :]) & 127
    odd = sign ^ (sign >> 4)
    odd = odd ^ (odd >> 2)
    sign = sign | (((odd ^ (odd >> 1)) & 1) << 7)
    scale = (((minors >> 28) & 15) * 2 + 1).to(tl.float16)
    value = tl.arange(0, 8)
    magnitude = tl.load(table + code[:, :, None] * 8 + value[None, None, :])
    weight = (magnitude * scale[:, :, None]).to(tl.int16, bitcast=True)
    flip = ((sign[:, :, None] << (15 - value)[None, None, :]) & 0x8000).to(tl.int16)
    return tl.reshape((weight ^ flip).to(tl.float16, bitcast=True), (lines, 128))


@triton.jit
def _enter(
    x: tl.tensor, order: tl.tensor, slot_weights: tl.tensor, words: tl.tensor, scales: tl.tensor, table: tl.tensor, experts: tl.tensor, starts: tl.tensor,
    stops: tl.tensor, out: tl.tensor, limit: tl.constexpr, k: tl.constexpr, hidden: tl.constexpr, inner: tl.constexpr,
    lines: tl.constexpr, height: tl.constexpr,
) -> None:  # fmt: skip
    start = tl.load(starts + tl.program_id(1))
    stop = tl.load(stops + tl.program_id(1))
    if start < stop:
        expert = tl.load(experts + tl.program_id(1)).to(tl.int64)
        blocks: tl.constexpr = hidden // 256
        place = start + tl.arange(0, height)
        live = place < stop
        slot = tl.load(order + place, mask=live, other=0)
        row = (slot // k).to(tl.int64)
        line = expert * (2 * inner) + tl.program_id(0) * lines + tl.arange(0, lines)
        gate_words = words + line * (blocks * 16)
        up_words = gate_words + inner * blocks * 16
        gate_scales = scales + line * blocks
        up_scales = gate_scales + inner * blocks
        column = tl.arange(0, 128)
        gate = tl.zeros((lines, height), tl.float32)
        up = tl.zeros((lines, height), tl.float32)
        for step in range(0, hidden // 128):
            block = step // 2
            rows = tl.load(x + row[:, None] * hidden + step * 128 + column[None, :])
            turned = tl.trans(rows)
            part = tl.dot(_iq2(gate_words + block * 16, step % 2, table, lines), turned)
            gate += tl.load(gate_scales + block).to(tl.float32)[:, None] * part
            part = tl.dot(_iq2(up_words + block * 16, step % 2, table, lines), turned)
            up += tl.load(up_scales + block).to(tl.float32)[:, None] * part
        gate = tl.minimum(gate * 0.125, limit)
        up = tl.minimum(tl.maximum(up * 0.125, -limit), limit)
        weight = tl.load(slot_weights + slot, mask=live, other=0.0)
        result = gate * tl.sigmoid(gate) * up * weight[None, :]
        to = tl.program_id(0) * lines + tl.arange(0, lines)
        target = out + place.to(tl.int64)[None, :] * inner + to[:, None]
        tl.store(target, result.to(tl.float16), mask=live[None, :])


def enter(x: Tensor, choice: Choice, groups: Groups, matrix: IQ2, table: Tensor, limit: float) -> Tensor:
    """Gated units float16 [T K, F], in the order of `groups`, of rows float16 [T, C]; routing weight included.

    `matrix` holds gate rows, then up rows, of every expert: [E, 2 F, C].  Against the twin: 2e-3 relative.
    """
    k, hidden = choice.experts.shape[1], x.shape[1]
    inner = matrix.scales.shape[1] // 2
    out = torch.empty(len(groups.order), inner, dtype=torch.float16, device=x.device)
    _enter[(inner // ENTER_TILE, len(groups.expert))](
        x, groups.order, choice.weights, matrix.words, matrix.scales, table, groups.expert, groups.start,
        groups.stop, out, limit, k, hidden, inner, ENTER_TILE, groups.height, num_warps=8, num_stages=2,
    )  # fmt: skip
    return out


@triton.jit
def _q2(words: tl.tensor, minors: tl.tensor, scales: tl.tensor, half: tl.tensor, lines: tl.constexpr) -> tl.tensor:
    """Half a block of rows in float16 [lines, 128]; pointers [lines] to the blocks' planes."""
    octet = tl.arange(0, 16)
    lane = octet % 4
    step = octet // 4
    value = tl.arange(0, 8)
    packed = tl.load(words[:, None] + (lane * 4 + 2 * half + step // 2)[None, :])
    shift = (4 * (step % 2))[:, None] + (2 * (value // 4) + 8 * (value % 4))[None, :]
    code = ((packed[:, :, None] >> shift[None, :, :]) & 3).to(tl.float32)
    minor = tl.load(minors[:, None] + (8 * (lane // 2) + 4 * half + step)[None, :]).to(tl.int32)
    scale = tl.load(scales).to(tl.float32)[:, None] * (minor & 15).to(tl.float32)
    low = tl.load(scales + 1).to(tl.float32)[:, None] * (minor >> 4).to(tl.float32)
    weight = code * scale[:, :, None] - low[:, :, None]
    return tl.reshape(weight.to(tl.float16), (lines, 128))


@triton.jit
def _leave(
    x: tl.tensor, order: tl.tensor, words: tl.tensor, minors: tl.tensor, scales: tl.tensor, experts: tl.tensor, starts: tl.tensor, stops: tl.tensor, out: tl.tensor,
    hidden: tl.constexpr, inner: tl.constexpr, lines: tl.constexpr, height: tl.constexpr,
) -> None:  # fmt: skip
    start = tl.load(starts + tl.program_id(1))
    stop = tl.load(stops + tl.program_id(1))
    if start < stop:
        expert = tl.load(experts + tl.program_id(1)).to(tl.int64)
        blocks: tl.constexpr = inner // 256
        place = start + tl.arange(0, height)
        live = place < stop
        row = tl.where(live, place, start).to(tl.int64)
        to = tl.program_id(0) * lines + tl.arange(0, lines)
        line = (expert * hidden + to) * blocks
        column = tl.arange(0, 128)
        sums = tl.zeros((lines, height), tl.float32)
        for step in range(0, inner // 128):
            at = line + step // 2
            rows = tl.load(x + row[:, None] * inner + step * 128 + column[None, :])
            weight = _q2(words + at * 16, minors + at * 16, scales + at * 2, step % 2, lines)
            sums = tl.dot(weight, tl.trans(rows), sums)
        slot = tl.load(order + place, mask=live, other=0).to(tl.int64)
        tl.store(out + slot[None, :] * hidden + to[:, None], narrow(sums), mask=live[None, :])


def leave(x: Tensor, groups: Groups, matrix: Q2) -> Tensor:
    """Outputs BF16 [T K, C], by slot t K + k, of gated units [T K, F] in the order of `groups`.

    `matrix` is [E, C, F].  Against the twin: one BF16 step and 1e-3 of the largest value.
    """
    hidden, inner = matrix.scales.shape[1], x.shape[1]
    out = torch.empty(len(x), hidden, dtype=torch.bfloat16, device=x.device)
    _leave[(hidden // LEAVE_TILE, len(groups.expert))](
        x, groups.order, matrix.words, matrix.minors, matrix.scales, groups.expert, groups.start, groups.stop,
        out, hidden, inner, LEAVE_TILE, groups.height, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out


def codebook(device: torch.device) -> Tensor:
    """Magnitudes of the 256 codewords, float16 [256, 8]: 4 KiB that stay in the first cache."""
    return torch.from_numpy(iq2_codewords().copy()).to(device, torch.float16)
