"""Dense layers of a chunk: packed weights laid out for the vendor's products, and what lies between those.

At thousands of rows a matrix is expanded in a twentieth of the time of its product.
Twins: `layouts.decode_q8`, `norm.rms_norm` and `moe.glu`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.layouts import Q8, Half
from engine.kernels.triton.numbers import narrow


@triton.jit
def _expand(values, scales, out, blocks: tl.constexpr, quantised: tl.constexpr):
    tile = tl.program_id(0).to(tl.int64) * blocks + tl.program_id(1)
    octet = tl.arange(0, 32)[:, None, None]
    row = tl.arange(0, 16)[None, :, None]
    value = tl.arange(0, 8)[None, None, :]
    step, lane = octet // 4, octet % 4
    if quantised:
        at = row // 8 * 2048 + step // 2 * 512 + row % 8 * 64 + lane * 16 + step % 2 * 8 + value
        scale = tl.load(scales + tile * 128 + row * 8 + step).to(tl.float32)
        number = narrow(tl.load(values + tile * 4096 + at).to(tl.float32) * scale)
    else:
        number = tl.load(values + tile * 4096 + step * 512 + row * 32 + lane * 8 + value)
    line = tl.program_id(0).to(tl.int64) * 16 + row
    tl.store(out + line * (blocks * 256) + tl.program_id(1) * 256 + octet * 8 + value, number)


def expand(matrix: Q8, out: Tensor) -> Tensor:
    """The matrix [N, K] in BF16, at the start of `out` (flat, large enough); nearest, ties to even."""
    return _expanded(matrix.codes, matrix.scales, out)


def unfold(matrix: Half, out: Tensor) -> Tensor:
    """The matrix [N, K] in float16, written to the start of `out`; exact."""
    return _expanded(matrix.values, None, out)


def _expanded(values: Tensor, scales: Tensor | None, out: Tensor) -> Tensor:
    tiles, blocks, _ = values.shape
    _expand[(tiles, blocks)](values, values if scales is None else scales, out, blocks, scales is not None)
    return out[: values.numel()].view(tiles * 16, blocks * 256)


@triton.jit
def _glu(x, out, limit: tl.constexpr, width: tl.constexpr, block: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    here = column < width
    gate = tl.load(x + line * (2 * width) + column, mask=here, other=0.0).to(tl.float32)
    up = tl.load(x + line * (2 * width) + width + column, mask=here, other=0.0).to(tl.float32)
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    tl.store(out + line * width + column, narrow(gate * tl.sigmoid(gate) * up), mask=here)


def glu(x: Tensor, limit: float, out: Tensor) -> None:
    """Clamped SwiGLU of gate | up [T, 2 F] to BF16 `out` [T, F]; one BF16 step."""
    tokens, width = out.shape
    block = min(1024, triton.next_power_of_2(width))
    _glu[(tokens, triton.cdiv(width, block))](x, out, limit, width, block)


@triton.jit
def _norm(
    x,
    weight,
    bf16,
    fp16,
    stride,
    eps: tl.constexpr,
    width: tl.constexpr,
    pad: tl.constexpr,
):
    line = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, pad)
    here = column < width
    y = tl.load(x + line * stride + column, mask=here, other=0.0).to(tl.float32)
    y = y * tl.rsqrt(tl.sum(y * y, 0) / width + eps) * tl.load(weight + column, mask=here, other=0.0)
    tl.store(bf16 + line * width + column, narrow(y), mask=here)
    tl.store(fp16 + line * width + column, y.to(tl.float16), mask=here)


def norm(x: Tensor, weight: Tensor, eps: float, bf16: Tensor, fp16: Tensor) -> None:
    """Normed rows of `x` [T, D], rows may be strided, in both formats [T, D]; half a step of each."""
    tokens, width = bf16.shape
    _norm[(tokens,)](x, weight, bf16, fp16, x.stride(0), eps, width, triton.next_power_of_2(width))


def product(x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """Rows [M, K] times a matrix [N, K] transposed, in their common half format: [M, N]."""
    return torch.mm(x, weight.t(), out=out) if out is not None else torch.mm(x, weight.t())


def wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """The same with float32 sums handed out: [M, N] float32."""
    if x.device.type == "cuda":
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return x.float().mm(weight.float().t())
