"""Root-mean-square normalisation, the only norm of the model.  Knows nothing of layers or weights' origin."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.ref.lanes import constant


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Scale each row of `x` [..., D] to unit root mean square, then by `weight` [D] (docs/model.md, 1)."""
    mean = (x * x).sum(-1, keepdim=True) / constant(float(x.shape[-1]))
    y = x * torch.rsqrt(mean + constant(eps))
    return y if weight is None else y * weight
