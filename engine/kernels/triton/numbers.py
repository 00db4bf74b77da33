"""Number formats inside Triton kernels: E4M3, FP4 (E2M1), BF16 and the split integers of the packed products.

Written with integer arithmetic alone, so that every card and the interpreter give the same bits
(docs/numerics.md).  Values that are already representable keep their bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Operands of BF16 products.  The interpreter multiplies no BF16; the same values in float32 give it the same
# sums.
OPERAND = tl.constexpr(tl.float32 if triton.knobs.runtime.interpret else tl.bfloat16)
_E4M3_BIAS = tl.constexpr(2.0**120)  # between the exponents of E4M3 and float32
_FP4_BIAS = tl.constexpr(2.0**127)  # the same of FP4, and once more for twice the value
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def narrow(x):
    """BF16 of float32, nearest, ties to even; the interpreter's own conversion would cut the bits off."""
    if INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        x = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)


@triton.jit
def rint(x):
    """Nearest integer, ties to even, of |x| < 2^22, as float32."""
    magic = 12582912.0  # 1.5 * 2^23
    return (x + magic) - magic


@triton.jit
def power(exponent):
    """2^exponent as float32 for int32 exponents -126 .. 127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def e4m3_exponent(peak):
    """Smallest int32 k with 448 * 2^k >= peak, at least that of 1e-4; 448 is 1.75 * 2^8.

    From the bits and not from a quotient: a card's quick division may miss an exact power of two.
    """
    bits = tl.maximum(peak, 1e-4).to(tl.int32, bitcast=True)
    return (bits >> 23) - 135 + ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)


@triton.jit
def fp4_exponent(peak):
    """Smallest int32 k with 6 * 2^k >= peak, at least -126; 6 is 1.5 * 2^2."""
    bits = tl.maximum(peak, 7.052966104933725e-38).to(tl.int32, bitcast=True)  # 6 * 2^-126
    return (bits >> 23) - 129 + ((bits & 0x7FFFFF) > 0x400000).to(tl.int32)


@triton.jit
def e4m3_encode(x):
    """Code (int32 0 .. 255) of |x| <= 448, nearest, ties to even."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    rounded = size + 0x7FFFF + ((size >> 20) & 1)
    normal = (rounded >> 20) - ((127 - 7) << 3)
    small = rint(tl.abs(x) * 512.0).to(tl.int32)
    return tl.where(size < (121 << 23), small, normal) | ((bits >> 24) & 0x80)


@triton.jit
def with_sign(size, sign):
    """`size`, not negative, with the lowest bit of int32 `sign`; where Triton 3.6 negates, no zero is
    negative."""
    return (size.to(tl.int32, bitcast=True) | (sign << 31)).to(tl.float32, bitcast=True)


@triton.jit
def e4m3_decode(code):
    """Value, float32, of int32 codes."""
    return with_sign(((code & 0x7F) << 20).to(tl.float32, bitcast=True) * _E4M3_BIAS, code >> 7)


@triton.jit
def fp4_encode(x):
    """Code (int32 0 .. 15) of |x| <= 6: nearest of 0, .5, 1, 1.5, 2, 3, 4, 6, ties to the even code."""
    a = tl.abs(x)
    code = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32)
    code += (
        (a >= 1.75).to(tl.int32) + (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
    )
    return code | ((x.to(tl.int32, bitcast=True) >> 28) & 8)


@triton.jit
def fp4_double(code):
    """Twice the value of int32 codes, float32: 0, 1, 2, 3, 4, 6, 8 or 12 with its sign.

    Exponent and mantissa of a code are put where float32 has its own; code 1 is a subnormal in both.
    """
    return with_sign(((code & 7) << 22).to(tl.float32, bitcast=True) * _FP4_BIAS, code >> 3)


@triton.jit
def split_scale(peak):
    """Scale of a 256-value block whose largest magnitude is `peak`."""
    return tl.where(peak > 0.0, peak / 32512.0, 1.0)


@triton.jit
def split_store(x, scale, ints, column):
    """Store values as 16-bit integers of `scale`: high and low int8 of value `column` of a row at `ints`.

    Eight high bytes are followed by their eight low bytes.  Returns the integers, float32.
    """
    whole = rint(x / scale)
    number = whole.to(tl.int32)
    high = (number + 128) >> 8
    at = ints + (column // 8) * 16 + column % 8
    tl.store(at, high.to(tl.int8))
    tl.store(at + 8, (number - high * 256).to(tl.int8))
    return whole


@triton.jit
def halves_store(x, halves, column):
    """Store values as two float16 parts, laid out as the integers are."""
    high = x.to(tl.float16)
    at = halves + (column // 8) * 16 + column % 8
    tl.store(at, high)
    tl.store(at + 8, (x - high.to(tl.float32)).to(tl.float16))
