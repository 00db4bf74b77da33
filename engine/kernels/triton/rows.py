"""Cached rows inside Triton kernels: how one is written and read, packed or wide.

The pointer's type says which: bytes (index rows are read in words) as `engine.kernels.rows` lays them out, or
float32 of the same values, which exist to compare with.  What a reader gets has the same bits either way.
Twin: `engine.kernels.ref.rows`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.triton.numbers import (
    OPERAND,
    e4m3_decode,
    e4m3_encode,
    e4m3_exponent,
    fp4_double,
    fp4_encode,
    fp4_exponent,
    narrow,
    power,
    with_sign,
)


@triton.jit
def store_kv(row, to, nope: tl.constexpr, width: tl.constexpr):
    """Round `row` [width] and write it at `to`: E4M3 codes with a scale each 64, BF16 tail."""
    blocks: tl.constexpr = width // 64
    grid = tl.reshape(row, (blocks, 64))
    exponent = e4m3_exponent(tl.max(tl.abs(grid), 1))
    inverse = power(-exponent)
    column = tl.arange(0, blocks)[:, None] * 64 + tl.arange(0, 64)[None, :]
    codes = e4m3_encode(tl.minimum(tl.maximum(grid * inverse[:, None], -448.0), 448.0))
    if to.dtype.element_ty == tl.float32:
        rounded = e4m3_decode(codes) * power(exponent)[:, None]
        tl.store(to + column, tl.where(column < nope, rounded, narrow(grid).to(tl.float32)))
    else:
        tl.store(to + column, codes.to(tl.uint8), mask=column < nope)
        block = tl.arange(0, blocks)
        tl.store(to + nope + block, (exponent + 127).to(tl.uint8), mask=block < nope // 64)
        tail_at: tl.constexpr = nope + (nope // 64 + 7) // 8 * 8
        tail = (to + tail_at).to(tl.pointer_type(tl.bfloat16))
        tl.store(tail + column - nope, narrow(grid), mask=column >= nope)


@triton.jit
def load_kv(line, live, nope: tl.constexpr, width: tl.constexpr, count: tl.constexpr):
    """Rows at the addresses `line` [count] as bfloat16 [count, width]; zero where not `live`."""
    column = tl.arange(0, width)[None, :]
    shown = live[:, None]
    if line.dtype.element_ty == tl.float32:
        # A value is a bfloat16, the upper half of its float32; read so, its 4 bytes never fill shared memory.
        halves = tl.multiple_of(line.to(tl.pointer_type(tl.bfloat16)), [16])[:, None]
        pairs = tl.load(halves + tl.arange(0, 2 * width)[None, :], mask=shown, other=0.0)
        _, values = tl.split(tl.reshape(pairs, (count, width, 2)))
        # Triton orders the inner sum of a product by the narrowest load behind it.  Packed rows are read in
        # bytes, so a byte of a wide row is too: one of those that are zero.
        byte = tl.load(line.to(tl.pointer_type(tl.uint8)), mask=live, other=0).to(tl.int16)
        bits = values.to(tl.int16, bitcast=True) | byte[:, None]
        values = bits.to(tl.bfloat16, bitcast=True)
    else:
        blocks: tl.constexpr = width // 64
        codes = tl.load(line[:, None] + column, mask=shown & (column < nope), other=0).to(tl.int32)
        block = tl.arange(0, blocks)[None, :]
        scales = tl.load(line[:, None] + nope + block, mask=shown & (block < nope // 64), other=127)
        unit = power(scales.to(tl.int32) - 127)
        scaled = tl.reshape(e4m3_decode(codes), (count, blocks, 64)) * unit[:, :, None]
        tail_at: tl.constexpr = nope + (nope // 64 + 7) // 8 * 8
        tail = (line + tail_at).to(tl.pointer_type(tl.bfloat16))
        turned = tl.load(tail[:, None] + column - nope, mask=shown & (column >= nope), other=0.0)
        values = tl.where(column < nope, narrow(tl.reshape(scaled, (count, width))), turned)
    return values


@triton.jit
def spread_fp4(x, spread, width: tl.constexpr):
    """Hadamard transform of `x` [width] and its FP4 codes [width / 32, 32] with the exponents [width /
    32]."""
    at = tl.arange(0, width)
    bits = at[:, None] & at[None, :]
    bits = bits ^ (bits >> 4)
    bits = bits ^ (bits >> 2)
    bits = bits ^ (bits >> 1)
    x = tl.sum(tl.where((bits & 1) != 0, -x[None, :], x[None, :]), 1) * spread
    grid = tl.reshape(x, (width // 32, 32))
    exponent = fp4_exponent(tl.max(tl.abs(grid), 1))
    return fp4_encode(grid * power(-exponent)[:, None]), exponent


@triton.jit
def store_index(row, spread, to, width: tl.constexpr):
    """Spread `row` [width] by Hadamard, round it to FP4 with a scale each 32 and write it at `to`."""
    code, exponent = spread_fp4(row, spread, width)
    block = tl.arange(0, width // 32)
    if to.dtype.element_ty == tl.float32:
        size = fp4_double(code & 7) * (power(exponent) * 0.5)[:, None]
        to += block[:, None] * 32 + tl.arange(0, 32)[None, :]
        tl.store(to, with_sign(size, code >> 3))
    else:
        pairs = tl.reshape(code, (width // 2, 2)) << (tl.arange(0, 2)[None, :] * 4)
        tl.store(to + tl.arange(0, width // 2), tl.sum(pairs, 1).to(tl.uint8))
        tl.store(to + width // 2 + block, (exponent + 127).to(tl.uint8))


@triton.jit
def load_index_scales(line, live, width: tl.constexpr):
    """The scale bytes of the index rows at `line`, a word each; wide rows have none."""
    if line.dtype.element_ty == tl.float32:
        scales = live.to(tl.int32)
    else:
        scales = tl.load(line + width // 8, mask=live, other=0)
    return scales


@triton.jit
def load_index(line, live, scales, block: tl.constexpr, count: tl.constexpr):
    """Values [32, count] of a block of the index rows at `line` [count], and what each row's are times.

    Integers and a power of two, or the values and one: products and their sums over a block are exact.
    """
    if line.dtype.element_ty == tl.float32:
        column = tl.arange(0, 32)
        values = tl.load(line[None, :] + block * 32 + column[:, None], mask=live[None, :], other=0.0)
        unit = tl.full([count], 1.0, tl.float32)
        k = narrow(values).to(OPERAND)
    else:
        word, nibble = tl.arange(0, 4), tl.arange(0, 8)
        packed = tl.load(line[None, :] + block * 4 + word[:, None], mask=live[None, :], other=0)
        nibbles = (packed[:, None, :] >> (4 * nibble[None, :, None])) & 15
        k = tl.reshape(fp4_double(nibbles).to(OPERAND), (32, count))
        unit = power(((scales >> (8 * block)) & 255) - 127) * 0.5
    return k, unit
