"""The indexer over a chunk: queries and rows rounded to FP4, scores as a product, the best rows by radix.

FP4 values with power-of-two scales are exact in BF16, so scores are exact up to the order of float32 sums.
Hadamard products run in three BF16 parts that make up a float32.
Choices are exact for given scores: higher score first, lower row among equals.
Twin: `engine.kernels.ref.index`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.rows import IndexLayout
from engine.kernels.triton.numbers import OPERAND, fp4_double, fp4_encode, fp4_exponent, narrow, power
from engine.kernels.triton.prefill.rows import Finish
from engine.kernels.triton.prefill.tiles import angles, turn

LINES = 32  # rows of one program that rounds
KEY_TILE = 128  # index rows and tokens of one program that scores
TOKEN_TILE = 16
SCAN = 2048  # scores that the selection looks at at a time


@dataclass(frozen=True, slots=True)
class Causal:
    """Which rows the tokens of a call see: token t stands at `first` + t, a row ends every `ratio`."""

    first: int
    ratio: int

    def rows(self, tokens: int) -> int:
        """Rows that the last of `tokens` tokens sees."""
        return (self.first + tokens) // self.ratio


@triton.jit
def _spread(
    x, weight, cos, sin, signs, at, packed, wide, count, stride,
    per: tl.constexpr, eps: tl.constexpr, spread: tl.constexpr, width: tl.constexpr, rope: tl.constexpr,
    nbytes: tl.constexpr, packs: tl.constexpr, lines: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    column = tl.arange(0, width)
    live = line < count
    y = tl.load(x + line[:, None] * stride + column[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    if packs:
        y = y * tl.rsqrt(tl.sum(y * y, 1) / width + eps)[:, None] * tl.load(weight + column)[None, :]
    pair = tl.arange(0, width // 2)
    turning = tl.minimum(line, count - 1) // per
    cosine = angles(cos, turning, pair, width - rope, rope, 1.0)
    y = turn(y, cosine, angles(sin, turning, pair, width - rope, rope, 0.0), lines, width)
    matrix = tl.load(signs + column[:, None] * width + column[None, :]).to(OPERAND)
    high = narrow(y)
    y -= high.to(tl.float32)
    middle = narrow(y)
    low = narrow(y - middle.to(tl.float32))
    y = tl.dot(middle.to(OPERAND), matrix, tl.dot(low.to(OPERAND), matrix))
    y = tl.dot(high.to(OPERAND), matrix, y) * spread
    blocks = tl.reshape(y, (lines, width // 32, 32))
    exponent = fp4_exponent(tl.max(tl.abs(blocks), 2))
    codes = fp4_encode(blocks * power(-exponent)[:, :, None])
    if packs:
        low, high = tl.split(tl.reshape(codes, (lines, width // 2, 2)))
        place = tl.load(at + line, mask=live, other=0).to(tl.int64)[:, None] * nbytes
        half = tl.arange(0, width // 2)
        tl.store(packed + place + half[None, :], (low | (high << 4)).to(tl.uint8), mask=live[:, None])
        block = tl.arange(0, width // 32)
        scale = packed + place + width // 2 + block[None, :]
        tl.store(scale, (exponent + 127).to(tl.uint8), mask=live[:, None])
    else:
        value = fp4_double(codes) * 0.5 * power(exponent)[:, :, None]
        out = wide + line[:, None] * width + column[None, :]
        tl.store(out, narrow(tl.reshape(value, (lines, width))), mask=live[:, None])


def finish(x: Tensor, how: Finish, signs: Tensor, at: Tensor, packed: Tensor) -> None:
    """Pooled rows `x` [n, d] to packed index rows `at` [n] of `packed` uint8 [rows, nbytes].

    `signs` is the Hadamard matrix of +1 and -1 in BF16 [d, d].  Codes equal the twins' but at rounding edges.
    """
    width = x.shape[1]
    _spread[(triton.cdiv(len(x), LINES),)](
        x, how.weight, how.cos, how.sin, signs, at, packed, x, len(x), x.stride(0),
        1, how.eps, width**-0.5, width, 2 * how.cos.shape[1], IndexLayout(width).nbytes, True, LINES,
    )  # fmt: skip


def queries(x: Tensor, cos: Tensor, sin: Tensor, signs: Tensor, wide: Tensor) -> None:
    """Raw queries `x` [T, heads, d] to rounded BF16 ones `wide`; angles [T, rope / 2]."""
    tokens, heads, width = x.shape
    _spread[(triton.cdiv(tokens * heads, LINES),)](
        x, x, cos, sin, signs, x, x, wide, tokens * heads, width,
        heads, 0.0, width**-0.5, width, 2 * cos.shape[1], 0, False, LINES,
    )  # fmt: skip


@triton.jit
def _unpack(
    packed,
    at,
    wide,
    count,
    width: tl.constexpr,
    nbytes: tl.constexpr,
    lines: tl.constexpr,
):
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    column = tl.arange(0, width)
    live = (line < count)[:, None]
    place = tl.load(at + line, mask=line < count, other=0).to(tl.int64)[:, None] * nbytes
    byte = tl.load(packed + place + (column // 2)[None, :], mask=live, other=0).to(tl.int32)
    scale = tl.load(packed + place + width // 2 + (column // 32)[None, :], mask=live, other=127).to(tl.int32)
    code = (byte >> ((column % 2) * 4)[None, :]) & 15
    value = fp4_double(code) * 0.5 * power(scale - 127)
    tl.store(wide + line[:, None] * width + column[None, :], narrow(value), mask=live)


def unpack(packed: Tensor, at: Tensor, wide: Tensor) -> None:
    """Packed index rows `at` [n] to BF16 `wide` [n, d]; exact."""
    if not len(at):
        return
    width = wide.shape[1]
    _unpack[(triton.cdiv(len(at), LINES),)](
        packed, at, wide, len(at), width, IndexLayout(width).nbytes, LINES
    )


@triton.jit
def _scores(
    q, keys, weights, out, first, tokens, rows, weight_stride, out_stride,
    scale: tl.constexpr, ratio: tl.constexpr, heads: tl.constexpr, width: tl.constexpr, pad: tl.constexpr,
    key_tile: tl.constexpr, token_tile: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * key_tile
    begin = tl.program_id(1) * token_tile
    end = tl.minimum(begin + token_tile, tokens)
    if start < (first + end) // ratio:
        row = start + tl.arange(0, key_tile)
        column = tl.arange(0, width)
        head = tl.arange(0, pad)
        key = tl.load(
            keys + row.to(tl.int64)[:, None] * width + column[None, :], mask=(row < rows)[:, None], other=0.0
        ).to(OPERAND)
        for token in range(begin, end):
            line = tl.full((), 0, tl.int64) + token
            query = q + line * (heads * width) + head[:, None] * width + column[None, :]
            value = tl.load(query, mask=(head < heads)[:, None], other=0.0).to(OPERAND)
            weight = tl.load(weights + line * weight_stride + head, mask=head < heads, other=0.0)
            dots = tl.dot(key, tl.trans(value))
            total = tl.sum(tl.maximum(dots, 0.0) * weight[None, :], 1) * scale
            tl.store(out + line * out_stride + row, total, mask=row < rows)


def scores(q: Tensor, keys: Tensor, weights: Tensor, causal: Causal, out: Tensor) -> None:
    """Scores `out` [T, R] of rounded queries [T, heads, d] and keys [R, d], weights float32 [T, heads].

    Places of rows that a token does not see yet hold anything.  Against the twin: 1e-5 relative.
    """
    tokens, heads, width = q.shape
    rows = causal.rows(tokens)
    grid = (triton.cdiv(rows, KEY_TILE), triton.cdiv(tokens, TOKEN_TILE))
    _scores[grid](
        q, keys, weights, out, causal.first, tokens, rows, weights.stride(0), out.stride(0),
        (heads * width) ** -0.5, causal.ratio, heads, width, max(16, triton.next_power_of_2(heads)),
        KEY_TILE, TOKEN_TILE,
    )  # fmt: skip


@triton.jit
def _ordered(value):
    """Unsigned keys in the order of the floats; both zeros are one."""
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32, bitcast=True)


@triton.jit
def _select(
    score, chosen, first, stride, ratio: tl.constexpr, k: tl.constexpr, pad: tl.constexpr,
    scan: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    count = (first + token + 1) // ratio
    out = chosen + token.to(tl.int64) * k
    lane = tl.arange(0, scan)
    if count <= k:
        place = tl.arange(0, pad)
        tl.store(out + place, tl.where(place < count, place, -1), mask=place < k)
    else:
        base = score + token.to(tl.int64) * stride
        prefix = tl.full((), 0, tl.uint32)
        need = tl.full((), k, tl.int32)
        digits = tl.arange(0, 256)
        for level in tl.static_range(4):
            shift = 24 - 8 * level
            hist = tl.zeros((256,), tl.int32)
            for start in range(0, count, scan):
                live = start + lane < count
                key = _ordered(tl.load(base + start + lane, mask=live, other=0.0))
                if level > 0:
                    live = live & ((key >> (shift + 8)) == (prefix >> (shift + 8)))
                hist += tl.histogram(((key >> shift) & 255).to(tl.int32), 256, mask=live)
            above = tl.sum(hist, 0) - tl.cumsum(hist, 0)  # keys with a larger digit
            digit = tl.max(tl.where(above + hist >= need, digits, 0), 0)
            need -= tl.sum(tl.where(digits == digit, above, 0), 0)
            prefix = prefix | (digit.to(tl.uint32) << shift)
        taken = tl.full((), 0, tl.int32)
        equals = tl.full((), 0, tl.int32)
        for start in range(0, count, scan):
            live = start + lane < count
            key = _ordered(tl.load(base + start + lane, mask=live, other=0.0))
            equal = (live & (key == prefix)).to(tl.int32)
            take = (live & (key > prefix)) | ((equal > 0) & (tl.cumsum(equal, 0) + equals <= need))
            number = take.to(tl.int32)
            tl.store(out + taken + tl.cumsum(number, 0) - 1, start + lane, mask=take)
            taken += tl.sum(number, 0)
            equals += tl.sum(equal, 0)


def select(score: Tensor, causal: Causal, k: int, chosen: Tensor) -> None:
    """The k best visible rows of each token, ascending, to int32 `chosen` [T, k]; then -1."""
    _select[(len(chosen),)](
        score, chosen, causal.first, score.stride(0), causal.ratio, k, triton.next_power_of_2(k), SCAN
    )


def empty_scores(tokens: int, rows: int, device: torch.device) -> Tensor:
    """Room for the scores of `tokens` tokens; rows start at whole lines of memory."""
    return torch.empty(tokens, triton.cdiv(rows, 32) * 32, device=device)
