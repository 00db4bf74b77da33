"""The roundings that belong to the model itself: E4M3 rows, FP4 index rows, BF16 row tails.

The published model is trained with these round trips, so they are part of its definition and not of a
storage format (docs/model.md, 9).  `Numerics` says which of them a run applies; the default is the
official model.  Scales are powers of two found from exponent bits, never from a logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from engine.kernels.ref.lanes import constant
from engine.kernels.rows import E4M3_BLOCK, FP4_BLOCK, SCALE_NAN

E4M3_MAX = 448.0
E4M3_FLOOR = 1e-4
FP4_MAX = 6.0
FP4_FLOOR = 6.0 * 2.0**-126
_MANTISSA = 0x7FFFFF
_EXPONENT = 0x7F800000
_E4M3_IN_HALF = -0x4080  # sign, exponent's low four bits, mantissa's high three: 0xBF80 as int16
_FP4_LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of codes 0 to 7; 8 to 15 are their negatives


@dataclass(frozen=True, slots=True)
class Numerics:
    """Which of the model's roundings are applied; all of them is what the official model does."""

    kv_fp8: bool = True
    index_fp4: bool = True
    tail_bf16: bool = True


EXACT = Numerics(kv_fp8=False, index_fp4=False, tail_bf16=False)


def _scaled(x: Tensor, block: int, floor: float, top: float) -> tuple[Tensor, Tensor]:
    """Scaled blocks [..., n / block, block] within +-top, and their scales [..., n / block, 1]."""
    parts = x.float().unflatten(-1, (-1, block))
    ratio = parts.abs().amax(-1, keepdim=True).clamp_min_(floor).div_(constant(top))
    ratio.view(torch.int32).add_(constant(_MANTISSA)).bitwise_and_(constant(~_MANTISSA))
    return (parts / ratio).clamp_(-top, top), ratio


def _scale_bytes(scale: Tensor) -> Tensor:
    """E8M0 bytes [...] of scales [..., 1]; blocks with an infinity or a NaN get the byte that says so."""
    exponent = (
        scale.squeeze(-1).view(torch.int32) >> constant(23)
    ).abs_()  # of a NaN the sum above left minus zero
    return exponent.clamp_(max=SCALE_NAN).to(torch.uint8)


def _scales(stored: Tensor, factor: float) -> Tensor:
    """Scales [..., 1] of E8M0 bytes, times `factor`."""
    return (stored.to(torch.int32) << constant(23)).view(torch.float32).mul_(constant(factor)).unsqueeze(-1)


def e4m3_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 codes (uint8 [..., n]) and E8M0 scale bytes (uint8 [..., n / 64]) of float rows."""
    scaled, scale = _scaled(x, E4M3_BLOCK, E4M3_FLOOR, E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn).view(torch.uint8).flatten(-2), _scale_bytes(scale)


def e4m3_values(codes: Tensor, scales: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Float32 rows [..., n] of E4M3 codes and scale bytes; exactly what `e4m3_codes` rounded to.

    A code's bits, moved into a float16, are the same number but for 2**8: half the time of a table.
    """
    out = torch.empty(codes.shape, device=codes.device) if out is None else out
    halves = (codes.view(torch.int8).to(torch.int16) << constant(7)).bitwise_and_(constant(_E4M3_IN_HALF))
    out.copy_(halves.view(torch.float16))
    out.unflatten(-1, (-1, E4M3_BLOCK)).mul_(_scales(scales, 2.0**8))
    return out


def e4m3_round(x: Tensor, nope_dim: int) -> Tensor:
    """E4M3 round trip of the first `nope_dim` values of each row [..., D]; the tail is untouched."""
    return torch.cat((e4m3_blocks(x[..., :nope_dim]).to(x.dtype), x[..., nope_dim:]), -1)


def e4m3_blocks(x: Tensor) -> Tensor:
    """E4M3 round trip of all values of rows [..., n], n a multiple of 64; float32."""
    scaled, scale = _scaled(x, E4M3_BLOCK, E4M3_FLOOR, E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn).float().mul_(scale).flatten(-2)


def bf16_tail(x: Tensor, nope_dim: int) -> Tensor:
    """BF16 round trip of the values after `nope_dim` of each row [..., D]."""
    return torch.cat((x[..., :nope_dim], x[..., nope_dim:].to(torch.bfloat16).to(x.dtype)), -1)


def _fp4_levels(scaled: Tensor) -> Tensor:
    """Nearest E2M1 levels of values within +-6; ties go to the even code, as half-to-even rounding does."""
    # Levels are half the value's own power of two apart, and half a unit below 2.
    step = (scaled.view(torch.int32) & constant(_EXPONENT)).view(torch.float32)
    step = step.mul_(constant(0.5)).clamp_min_(0.5)
    return (scaled / step).round_().mul_(step)


def fp4_round(x: Tensor) -> Tensor:
    """E2M1 round trip of every 32-block of each row [..., n]."""
    scaled, scale = _scaled(x, FP4_BLOCK, FP4_FLOOR, FP4_MAX)
    return (_fp4_levels(scaled) * scale).flatten(-2).to(x.dtype)


def fp4_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """E2M1 codes, two a byte (uint8 [..., n / 2]), and E8M0 scale bytes (uint8 [..., n / 32])."""
    scaled, scale = _scaled(x, FP4_BLOCK, FP4_FLOOR, FP4_MAX)
    bits = _fp4_levels(scaled).mul_(2.0**-14).half().view(torch.int16).flatten(-2)
    codes = ((bits >> 9) & 7) | ((bits >> 12) & 8)
    return (codes[..., ::2] | (codes[..., 1::2] << 4)).to(torch.uint8), _scale_bytes(scale)


def fp4_values(codes: Tensor, scales: Tensor) -> Tensor:
    """Float32 rows [..., n] of paired E2M1 codes and scale bytes; exactly what `fp4_codes` rounded to.

    A byte is looked up as both of its values at once: on a Xeon a decode step over 131,072 tokens took 38 ms
    of processor time where moving bits into float16 places took 40.
    """
    pairs = _fp4_pairs(codes.device).index_select(0, codes.flatten().to(torch.int32))
    values = pairs.view(torch.float32).view(*codes.shape[:-1], -1)
    values.unflatten(-1, (-1, FP4_BLOCK)).mul_(_scales(scales, 1.0))
    return values


@lru_cache
def _fp4_pairs(device: torch.device) -> Tensor:
    """Both values of every byte, two float32 as one int64 [256]."""
    with torch.inference_mode(False):
        levels = torch.tensor([*_FP4_LEVELS, *(-level for level in _FP4_LEVELS)], device=device)
        both = torch.stack((levels.repeat(16), levels.repeat_interleave(16)), 1)
        return both.view(torch.int64).flatten()


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
