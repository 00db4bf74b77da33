"""Activation functions whose bits never depend on where a value stands in its tensor.

A CPU's built-in sigmoid computes whole vectors with one formula and the last few values with another, so a
row's bits would change with the number of rows beside it.  Its exponential has no such seam; the forms
below are built on that alone.  Elsewhere, and under autograd, the built-in functions are used.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def _seamless(x: Tensor) -> bool:
    return x.device.type != "cpu" or x.requires_grad


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), any shape."""
    if _seamless(x):
        return torch.sigmoid(x)
    return x.neg().exp_().add_(1.0).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x), any shape."""
    if _seamless(x):
        return functional.silu(x)
    return x / x.neg().exp_().add_(1.0)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), any shape; exact x for large x."""
    if _seamless(x):
        return functional.softplus(x)
    return x.abs().neg_().exp_().log1p_().add_(x.clamp(min=0.0))
