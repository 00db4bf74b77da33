"""Activation functions whose bits never depend on where a value stands in its tensor.

A CPU's built-in sigmoid computes whole vectors with one formula and the last few values with another, so a
row's bits would change with the number of rows beside it.  Its exponential has no such seam; the forms
below are built on that alone.  Elsewhere, and under autograd, the built-in functions are used.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional


@cache
def constant(value: float) -> Tensor:
    """A number as a tensor without dimensions: float32, or int32 where it is an int.

    An operation with a Python number makes such a tensor each time, which for few rows takes as long as the
    operation itself.  It never changes the type of what it meets, and may meet tensors of any device.
    """
    with torch.inference_mode(False):  # whoever asks first must not decide that it cannot be trained through
        return torch.tensor(value, dtype=torch.int32 if type(value) is int else torch.float32)


def _seamless(x: Tensor) -> bool:
    return x.device.type != "cpu" or x.requires_grad


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), any shape."""
    if _seamless(x):
        return torch.sigmoid(x)
    return x.neg().exp_().add_(constant(1.0)).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x), any shape."""
    if _seamless(x):
        return functional.silu(x)
    return x / x.neg().exp_().add_(constant(1.0))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), any shape; exact x for large x."""
    if _seamless(x):
        return functional.softplus(x)
    return x.abs().neg_().exp_().log1p_().add_(x.clamp(min=0.0))
