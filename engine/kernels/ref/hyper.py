"""Hyper-connections: n residual streams mixed by a doubly stochastic matrix (docs/model.md, 3).

Elementwise parts only; the projection of the normed streams is the caller's matmul.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.ref.lanes import sigmoid


def mix(
    z: Tensor, scale: Tensor, base: Tensor, n: int, iterations: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Projection z [..., (2 + n) n] to pre [..., n], post [..., n] and the mixing matrix [..., n, n]."""
    pre = sigmoid(z[..., :n] * scale[0] + base[:n]) + eps
    post = 2 * sigmoid(z[..., n : 2 * n] * scale[1] + base[n : 2 * n])
    matrix = (z[..., 2 * n :] * scale[2] + base[2 * n :]).reshape(*z.shape[:-1], n, n)
    return pre, post, sinkhorn(matrix, iterations, eps)


def sinkhorn(matrix: Tensor, iterations: int, eps: float) -> Tensor:
    """Row softmax, then alternate column and row normalisation; [..., n, n], ends with columns."""
    comb = torch.softmax(matrix, -1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """Weighted sum of the streams [..., n, C] to the sub-layer's input [..., C]."""
    return (pre.unsqueeze(-1) * streams).sum(-2)


def expand(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """New streams: post[k] y + sum_j comb[j, k] streams[j]; the matrix is used transposed."""
    mixed = (comb.unsqueeze(-1) * streams.unsqueeze(-2)).sum(-3)  # [..., j, k, C] summed over j
    return post.unsqueeze(-1) * y.unsqueeze(-2) + mixed


def head_mix(z: Tensor, scale: Tensor, base: Tensor, eps: float) -> Tensor:
    """Stream weights of the output head [..., n]."""
    return sigmoid(z * scale[0] + base) + eps
