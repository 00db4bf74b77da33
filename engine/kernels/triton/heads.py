"""Queries of a decode step: heads normed and rotated in two BF16 parts, indexer heads as FP4 integers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.chain import follow
from engine.kernels.triton.numbers import fp4_double, narrow, power
from engine.kernels.triton.project import rope_pair
from engine.kernels.triton.rows import spread_fp4


@dataclass(frozen=True, slots=True)
class Queries:
    """high + low bfloat16 [M, 2, H, D], scaled for the scores; codes int8 [M, h, d] and scales float32 [M,
    h, d / 32].

    A code is twice the FP4 value, an integer of at most 12.
    """

    heads: Tensor
    codes: Tensor
    scales: Tensor


@triton.jit
def _head(base, angles, to, low, width: tl.constexpr, rope: tl.constexpr, rms_eps):
    """One head normed and rotated, times the scores' factor, in two parts at `to` and `low`."""
    at = tl.arange(0, width)
    x = tl.load(base + at)
    root = 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + rms_eps)
    x = rope_pair(x * root, tl.load(base + (at ^ 1)) * root, angles, width - rope, at) * (width**-0.5)
    high = narrow(x)
    tl.store(to + at, high)
    tl.store(low + at, narrow(x - high.to(tl.float32)))


@triton.jit
def _index_head(base, angles, codes, scales, width: tl.constexpr, rope: tl.constexpr, spread):
    """One indexer head rotated, spread and rounded."""
    at = tl.arange(0, width)
    x = rope_pair(tl.load(base + at), tl.load(base + (at ^ 1)), angles, width - rope, at)
    code, exponent = spread_fp4(x, spread, width)
    block = tl.arange(0, width // 32)
    tl.store(codes + block[:, None] * 32 + tl.arange(0, 32)[None, :], fp4_double(code).to(tl.int8))
    tl.store(scales + block, power(exponent) * 0.5)


@triton.jit
def _queries(
    q,
    index_q,
    angles,
    angle_stride,
    heads,
    codes,
    scales,
    count: tl.constexpr,
    width: tl.constexpr,
    index_count: tl.constexpr,
    index_width: tl.constexpr,
    rope: tl.constexpr,
    spread,
    rms_eps,
):
    follow()
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    angles += row * angle_stride
    if head < count:
        to = heads + (row * 2 * count + head) * width
        _head(q + (row * count + head) * width, angles, to, to + count * width, width, rope, rms_eps)
    else:
        line = row * index_count + head - count
        to_codes, to_scales = codes + line * index_width, scales + line * (index_width // 32)
        _index_head(index_q + line * index_width, angles, to_codes, to_scales, index_width, rope, spread)


def queries(
    q: Tensor, index_q: Tensor | None, angles: Tensor, out: Queries, *, rope: int, rms_eps: float
) -> None:
    """From projections q [M, H D] and, in sparse layers, index_q [M, h d]; `angles` as the layer's kind has
    them."""
    count, width = out.heads.shape[2:]
    index_count, index_width = out.codes.shape[1:]
    programs = count + (index_count if index_q is not None else 0)
    _queries[(q.shape[0], programs)](
        q,
        q if index_q is None else index_q,
        angles,
        angles.stride(0),
        out.heads,
        out.codes,
        out.scales,
        count,
        width,
        index_count,
        index_width,
        rope,
        index_width**-0.5,
        rms_eps,
        launch_pdl=True,
        num_warps=4,
    )


def empty(rows: int, heads: tuple[int, int], index: tuple[int, int], device: torch.device) -> Queries:
    """Room for a step: `heads` and `index` are counts and widths."""
    return Queries(
        torch.zeros(rows, 2, *heads, dtype=torch.bfloat16, device=device),
        torch.zeros(rows, *index, dtype=torch.int8, device=device),
        torch.zeros(rows, index[0], index[1] // 32, device=device),
    )
