"""The roundings that belong to the model itself: E4M3 rows, FP4 index rows, BF16 row tails.

The published model is trained with these round trips, so they are part of its definition and not of a
storage format (docs/model.md, 9).  `Numerics` says which of them a run applies; the default is the
official model.  Scales are powers of two found from exponent bits, never from a logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

E4M3_BLOCK = 64
E4M3_MAX = 448.0
E4M3_FLOOR = 1e-4
FP4_BLOCK = 32
FP4_MAX = 6.0
FP4_FLOOR = 6.0 * 2.0**-126
_MANTISSA = 0x7FFFFF
_EXPONENT = 0x7F800000
_FP4_LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Numerics:
    """Which of the model's roundings are applied; all of them is what the official model does."""

    kv_fp8: bool = True
    index_fp4: bool = True
    tail_bf16: bool = True


EXACT = Numerics(kv_fp8=False, index_fp4=False, tail_bf16=False)


def ceil_exponent(ratio: Tensor) -> Tensor:
    """Smallest int32 k with 2**k >= ratio, for positive normal float32 `ratio`."""
    bits = ratio.contiguous().view(torch.int32)
    return (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def power_of_two(exponent: Tensor) -> Tensor:
    """Exact float32 2**exponent for int32 exponents -126 to 127."""
    return ((exponent + 127) << 23).view(torch.float32)


def _in_blocks(x: Tensor, block: int) -> Tensor:
    """Rows [..., n] as [..., n / block, block]."""
    return x.reshape(*x.shape[:-1], -1, block)


def _blocks(x: Tensor, block: int, floor: float, top: float) -> tuple[Tensor, Tensor]:
    """Scaled blocks [..., n / block, block] within +-top, and their exponents [..., n / block]."""
    parts = _in_blocks(x.float(), block)
    exponent = ceil_exponent(parts.abs().amax(-1).clamp_min(floor) / top)
    return (parts / power_of_two(exponent).unsqueeze(-1)).clamp(-top, top), exponent


def _scaled(x: Tensor, block: int, floor: float, top: float) -> tuple[Tensor, Tensor]:
    """Scaled blocks as `_blocks` gives them, and the scales themselves [..., n / block, 1]."""
    parts = _in_blocks(x.float(), block)
    ratio = parts.abs().amax(-1, keepdim=True).clamp_min(floor) / top
    scale = ((ratio.view(torch.int32) + _MANTISSA) & ~_MANTISSA).view(torch.float32)
    return (parts / scale).clamp(-top, top), scale


def e4m3_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 codes (uint8 [..., n]) and block exponents (int8 [..., n / 64]) of float rows."""
    scaled, exponent = _blocks(x, E4M3_BLOCK, E4M3_FLOOR, E4M3_MAX)
    codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8).flatten(-2)
    return codes, exponent.to(torch.int8)


def e4m3_values(codes: Tensor, exponents: Tensor) -> Tensor:
    """Float32 rows of E4M3 codes and block exponents; the inverse of `e4m3_codes`, exact."""
    parts = _in_blocks(codes.view(torch.float8_e4m3fn).float(), E4M3_BLOCK)
    return (parts * power_of_two(exponents.to(torch.int32)).unsqueeze(-1)).flatten(-2)


def e4m3_round(x: Tensor, nope_dim: int) -> Tensor:
    """E4M3 round trip of the first `nope_dim` values of each row [..., D]; the tail is untouched."""
    scaled, scale = _scaled(x[..., :nope_dim], E4M3_BLOCK, E4M3_FLOOR, E4M3_MAX)
    rounded = scaled.to(torch.float8_e4m3fn).float() * scale
    return torch.cat((rounded.flatten(-2).to(x.dtype), x[..., nope_dim:]), -1)


def bf16_tail(x: Tensor, nope_dim: int) -> Tensor:
    """BF16 round trip of the values after `nope_dim` of each row [..., D]."""
    return torch.cat((x[..., :nope_dim], x[..., nope_dim:].to(torch.bfloat16).to(x.dtype)), -1)


def _fp4_magnitude(a: Tensor) -> Tensor:
    """Nearest E2M1 level of 0 <= a <= 6; ties go to the even code, which half-to-even rounding gives."""
    step = torch.where(a < 2.0, 0.5, torch.where(a < 4.0, 1.0, 2.0))
    return (a / step).round() * step


def fp4_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """E2M1 codes with the sign in bit 3 (uint8 [..., n], one a byte) and exponents (int8 [..., n / 32])."""
    scaled, exponent = _blocks(x, FP4_BLOCK, FP4_FLOOR, FP4_MAX)
    levels = torch.tensor(_FP4_LEVELS, device=x.device)
    code = torch.searchsorted(levels, _fp4_magnitude(scaled.abs()).contiguous())
    sign = torch.signbit(scaled).to(torch.int64) << 3
    return (code | sign).to(torch.uint8).flatten(-2), exponent.to(torch.int8)


def fp4_values(codes: Tensor, exponents: Tensor) -> Tensor:
    """Float32 rows of E2M1 codes and block exponents; the inverse of `fp4_codes`, exact."""
    levels = torch.tensor(_FP4_LEVELS, device=codes.device)
    magnitude = levels[(codes & 7).long()]
    value = _in_blocks(torch.where(codes >= 8, -magnitude, magnitude), FP4_BLOCK)
    return (value * power_of_two(exponents.to(torch.int32)).unsqueeze(-1)).flatten(-2)


def fp4_round(x: Tensor) -> Tensor:
    """E2M1 round trip of every 32-block of each row [..., n]."""
    scaled, scale = _scaled(x, FP4_BLOCK, FP4_FLOOR, FP4_MAX)
    # Levels are half the value's own power of two apart, and half a unit below 2.
    step = (scaled.view(torch.int32) & _EXPONENT).view(torch.float32).mul(0.5).clamp_min(0.5)
    rounded: Tensor = (scaled / step).round() * step * scale
    return rounded.flatten(-2).to(x.dtype)


def hadamard(x: Tensor) -> Tensor:
    """Orthonormal Walsh-Hadamard transform (Sylvester order) of rows [..., n], n a power of two."""
    n = x.shape[-1]
    half = 1
    while half < n:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack((a + b, a - b), -2).flatten(-3)
        half *= 2
    scale: float = n**-0.5
    return x * scale
