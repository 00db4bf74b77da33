"""Router and gated unit of the mixture of experts (docs/model.md, 7).  The matmuls are the caller's."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.ref.lanes import silu, softplus

WEIGHT_FLOOR = 2.0**-14  # keeps the normalisation finite when every score underflows


def scores(logits: Tensor) -> Tensor:
    """Router scores sqrt(softplus(logit)), [..., E]."""
    return softplus(logits).sqrt()


def choose(score: Tensor, bias: Tensor, k: int) -> Tensor:
    """The k experts with the largest score + bias, lowest index first among equals; int64 [..., k].

    The bias steers selection only.  A stable sort keeps ties in index order, which top-k does not promise.
    """
    return torch.sort(score + bias, dim=-1, descending=True, stable=True).indices[..., :k]


def weights(score: Tensor, experts: Tensor, scale: float) -> Tensor:
    """Normalised weights of the chosen experts [..., K] from the unbiased scores [..., E]."""
    chosen = score.gather(-1, experts)
    return chosen / chosen.sum(-1, keepdim=True).clamp_min(WEIGHT_FLOOR) * scale


def glu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """Clamped SwiGLU: silu(min(gate, limit)) * clamp(up, -limit, limit)."""
    return silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
