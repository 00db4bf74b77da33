"""Arithmetic of the independent engine behind the golden logits: its own roundings on top of the model's.

Inputs of 8-bit matrices are rounded to 8 bits per 32 values, inputs of k-quant matrices to 8 bits per 256,
and their products are sums of integers, which float64 comes closest to; cached rows are float16; angles grow
by repeated float32 multiplication (docs/model.md, roundings).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.gguf.quants import QuantType
from engine.kernels.ref.rounding import Numerics
from engine.kernels.rows import Storage
from engine.model.ops import Matrix, Ops, Role, Rotation
from engine.model.spec import ModelSpec

_K_QUANTS = (QuantType.IQ2_XXS, QuantType.Q2_K, QuantType.Q4_K)


class GoldenOps(Ops):
    """The engine's graph with the other engine's roundings; tails are float16, not bfloat16."""

    def __init__(self, spec: ModelSpec, numerics: Numerics, storage: Storage = "packed") -> None:
        assert not numerics.tail_bf16
        super().__init__(spec, numerics, storage)

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor:
        """Product with the input rounded as the weight's format asks."""
        return (round_activations(x, matrix.type).double() @ matrix.values().double()).float()

    def grouped(self, x: Tensor, matrix: Matrix) -> Tensor:
        """Product per group, rounded alike."""
        rows = round_activations(x, matrix.type).double().transpose(0, 1)
        return rows.bmm(matrix.values().double()).transpose(0, 1).float()

    def store(self, rows: Tensor, role: Role) -> Tensor:
        """Rows with the model's roundings, then float16."""
        return super().store(rows, role).half().float()

    def rotation(self, positions: Tensor, *, scaled: bool) -> Rotation:
        """Angles by repeated float32 multiplication."""
        spec = self.spec
        base = spec.compress_rope_base if scaled else spec.rope_base
        step = torch.tensor(base ** (-2.0 / spec.rope_dim), dtype=torch.float32)
        theta = positions.float()
        angles = []
        for _ in range(spec.rope_dim // 2):
            angles.append(theta)
            theta = theta * step
        angle = torch.stack(angles, -1)
        if scaled:
            ramp = _ramp(spec)
            angle = angle * (1 / spec.yarn_factor) * (1 - ramp) + angle * ramp
        return Rotation(angle.cos(), angle.sin())


def _ramp(spec: ModelSpec) -> Tensor:
    """Share of the unscaled angle, float32 per pair: 1 for fast pairs, 0 for slow ones."""

    def pair(turns: float) -> float:
        waves = spec.yarn_original_context / (turns * 2 * math.pi)
        return spec.rope_dim * math.log(waves) / (2 * math.log(spec.compress_rope_base))

    low = max(0.0, math.floor(pair(spec.yarn_beta_fast)))
    high = min(spec.rope_dim - 1.0, math.ceil(pair(spec.yarn_beta_slow)))
    index = torch.arange(spec.rope_dim // 2, dtype=torch.float32)
    return 1 - ((index - low) / max(0.001, high - low)).clamp(0, 1)


def round_activations(x: Tensor, kind: QuantType) -> Tensor:
    """The 8-bit round trip of a matrix's input [..., n], if its weights are blocks of integers."""
    if kind is QuantType.Q8_0:
        blocks = x.reshape(*x.shape[:-1], -1, 32)
        scale = blocks.abs().amax(-1, keepdim=True) / 127
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        return (torch.round(blocks * inverse) * scale).reshape(x.shape)
    if kind in _K_QUANTS:
        blocks = x.reshape(*x.shape[:-1], -1, 256)
        largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
        inverse = torch.where(largest != 0, -127 / largest, 0.0)
        scale = torch.where(inverse != 0, 1 / inverse, 0.0)
        return (torch.round(blocks * inverse).clamp(max=127) * scale).reshape(x.shape)
    return x
