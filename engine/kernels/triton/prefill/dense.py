"""Dense layers of a chunk: Q8_0 expanded to BF16 for the vendor's product, and what stands between products.

At thousands of rows a matrix is expanded in a twentieth of the time of its product.
Twins: `layouts.decode_q8`, `norm.rms_norm` and `moe.glu`.
"""

from __future__ import annotations


import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.layouts import Q8
from engine.kernels.triton.prefill.tiles import narrow

BLOCK = 4096  # values of one program


@triton.jit
def _expand(codes: tl.tensor, scales: tl.tensor, out: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    live = at < count
    code = tl.load(codes + at, mask=live, other=0).to(tl.float32)
    scale = tl.load(scales + at // 32, mask=live, other=0.0).to(tl.float32)
    tl.store(out + at, narrow(code * scale), mask=live)


def expand(matrix: Q8, out: Tensor) -> Tensor:
    """The matrix [..., N, K] in BF16, written to the start of `out` (flat, large enough); half a BF16 step."""
    count = matrix.codes.numel()
    _expand[(triton.cdiv(count, BLOCK),)](matrix.codes, matrix.scales, out, count, BLOCK)
    return out[:count].view(matrix.codes.shape)


@triton.jit
def _glu(x: tl.tensor, out: tl.tensor, limit: tl.constexpr, width: tl.constexpr, block: tl.constexpr) -> None:
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
    x: tl.tensor, weight: tl.tensor, bf16: tl.tensor, fp16: tl.tensor, stride: tl.tensor, eps: tl.constexpr, width: tl.constexpr, pad: tl.constexpr
) -> None:
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
