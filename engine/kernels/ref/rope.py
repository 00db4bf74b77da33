"""Rotary positions on the last dimensions of a row, plain and YaRN.  Knows nothing of layers.

Angles are float32 `position * frequency`, each frequency formed in float64 and rounded once
(docs/model.md, 2): published implementations differ here, and this choice is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Yarn:
    """Frequency interpolation beyond the original context (YaRN, arXiv 2309.00071), no magnitude scale."""

    factor: float
    original_context: int
    beta_fast: float
    beta_slow: float


def frequencies(rope_dim: int, base: float, *, yarn: Yarn | None = None) -> Tensor:
    """Angular frequencies in radians per token, float32 [rope_dim / 2]."""
    index = torch.arange(rope_dim // 2, dtype=torch.float64)
    plain = base ** (-2.0 * index / rope_dim)
    if yarn is None:
        return plain.float()
    low = max(math.floor(_turns_index(yarn.beta_fast, rope_dim, base, yarn.original_context)), 0)
    high = min(math.ceil(_turns_index(yarn.beta_slow, rope_dim, base, yarn.original_context)), rope_dim - 1)
    ramp = ((index - low) / max(high - low, 1e-3)).clamp(0, 1)
    return (plain * (1 - ramp) + plain / yarn.factor * ramp).float()


def _turns_index(turns: float, rope_dim: int, base: float, context: int) -> float:
    """The (fractional) pair index whose wave makes `turns` turns within `context` tokens."""
    return rope_dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))


def cos_sin(positions: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, float32 [*positions.shape, rope_dim / 2]."""
    angle = positions.to(torch.float32).unsqueeze(-1) * freqs
    return angle.cos(), angle.sin()


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor, *, inverse: bool = False) -> Tensor:
    """Rotate adjacent pairs of the last `2 * cos.shape[-1]` dimensions of `x` [..., D]."""
    width = 2 * cos.shape[-1]
    head, tail = x.split((x.shape[-1] - width, width), -1)
    even, odd = tail.unflatten(-1, (-1, 2)).unbind(-1)
    if inverse:
        sin = -sin
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((head, turned.to(x.dtype)), -1)


def rotate(x: Tensor, positions: Tensor, freqs: Tensor, *, inverse: bool = False) -> Tensor:
    """`rotate_by` with the angles of `positions`, which broadcast against the leading dimensions of `x`."""
    cos, sin = cos_sin(positions, freqs)
    return rotate_by(x, cos, sin, inverse=inverse)
