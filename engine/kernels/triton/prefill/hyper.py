"""Hyper-connections of a chunk: streams are read twice and written once a site.

`cross` leaves a sub-layer (or embeds) and projects the new streams while they are at hand; `weigh` turns the
projections into gates and the balanced matrix; `enter` mixes the streams and norms.  The streams enter
the projection as two TF32 parts, which together with its float16 weights keeps 22 bits.
Twin: `engine.kernels.ref.hyper`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.triton.hyper import Site
from engine.kernels.triton.numbers import narrow

TOKENS = 16  # of one program of `cross`
COLUMNS = 64  # of one step
SPAN = 256  # columns of a stream in one program
OUTPUTS = 32  # a projection's outputs, (2 + n) n for at most 4 streams, filled up


@dataclass(frozen=True, slots=True)
class Mixing:
    """Numbers of the model: streams, Sinkhorn iterations, its epsilon, the norm's epsilon."""

    count: int
    iterations: int
    eps: float
    rms_eps: float


@dataclass(frozen=True, slots=True)
class Projection:
    """Partial projections [splits, T, 32] and sums of squares [splits, T] of the streams."""

    z: Tensor
    squares: Tensor


@triton.jit
def _left(
    y,
    x0,
    x1,
    x2,
    x3,
    gates,
    line,
    live,
    k: tl.constexpr,
    n: tl.constexpr,
):
    """post[k] y + sum_j comb[j, k] x_j; a token's gates are pre [n], post [n], comb [n, n]."""
    base = gates + line * ((2 + n) * n)
    out = tl.load(base + n + k, mask=live, other=0.0)[:, None] * y
    out += tl.load(base + 2 * n + k, mask=live, other=0.0)[:, None] * x0
    if n > 1:
        out += tl.load(base + 3 * n + k, mask=live, other=0.0)[:, None] * x1
    if n > 2:
        out += tl.load(base + 4 * n + k, mask=live, other=0.0)[:, None] * x2
    if n > 3:
        out += tl.load(base + 5 * n + k, mask=live, other=0.0)[:, None] * x3
    return out


@triton.jit
def _cross(
    streams, new, y, parts, ids, gates, fn, z, squares, tokens,
    hidden: tl.constexpr, n: tl.constexpr, slots: tl.constexpr, embeds: tl.constexpr, projects: tl.constexpr,
    outputs: tl.constexpr, wide: tl.constexpr, span: tl.constexpr, columns: tl.constexpr, lines: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    live = line < tokens
    first = tl.program_id(1) * span
    sums = tl.zeros((lines, wide), tl.float32)
    power = tl.zeros((lines,), tl.float32)
    source = tl.load(ids + line, mask=live, other=0).to(tl.int64) if embeds else line
    for start in range(first, first + span, columns):
        column = start + tl.arange(0, columns)
        here = column < hidden
        mask = live[:, None] & here[None, :]
        value = tl.load(y + source[:, None] * hidden + column[None, :], mask=mask, other=0.0).to(tl.float32)
        for slot in tl.static_range(slots):
            part = parts + (line * slots + slot)[:, None] * hidden + column[None, :]
            value += tl.load(part, mask=mask, other=0.0).to(tl.float32)
        at = streams + line[:, None] * (n * hidden) + column[None, :]
        x0 = value
        x1 = value
        x2 = value
        x3 = value
        if not embeds:
            x0 = tl.load(at, mask=mask, other=0.0)
            if n > 1:
                x1 = tl.load(at + hidden, mask=mask, other=0.0)
            if n > 2:
                x2 = tl.load(at + 2 * hidden, mask=mask, other=0.0)
            if n > 3:
                x3 = tl.load(at + 3 * hidden, mask=mask, other=0.0)
        for k in tl.static_range(n):
            out = value
            if not embeds:
                out = _left(value, x0, x1, x2, x3, gates, line, live, k, n)
            tl.store(new + line[:, None] * (n * hidden) + k * hidden + column[None, :], out, mask=mask)
            if projects:
                power += tl.sum(out * out, 1)
    if projects:
        # The product reads what was just written, from a near cache: computed operands would double all work.
        tl.debug_barrier()
        output = tl.arange(0, wide)
        for step in range(0, n * span, columns):
            column = first + step % span + tl.arange(0, columns)
            here = column < hidden
            at = step // span * hidden + column
            x = tl.load(
                new + line[:, None] * (n * hidden) + at[None, :],
                mask=live[:, None] & here[None, :],
                other=0.0,
            )
            weight = tl.load(
                fn + output[None, :] * (n * hidden) + at[:, None],
                mask=here[:, None] & (output < outputs)[None, :],
                other=0.0,
            ).to(tl.float32)
            high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)  # the bits of TF32
            sums = tl.dot(high, weight, sums, input_precision="tf32")
            sums = tl.dot(x - high, weight, sums, input_precision="tf32")
        split = tl.program_id(1).to(tl.int64) * tokens + line
        output = tl.arange(0, wide)
        tl.store(z + split[:, None] * wide + output[None, :], sums, mask=live[:, None])
        tl.store(squares + split, power, mask=live)


@dataclass(frozen=True, slots=True)
class Output:
    """What a sub-layer hands back: rows [T, C], and for experts also one row a slot [T, K, C] to add up."""

    rows: Tensor
    slots: Tensor | None = None


def _launch(
    new: Tensor, y: Tensor, parts: Tensor | None, fn: Tensor | None, out: Projection, *,
    ids: Tensor | None, streams: Tensor | None, gates: Tensor | None,
) -> None:  # fmt: skip
    tokens, n, hidden = new.shape
    _cross[(triton.cdiv(tokens, TOKENS), triton.cdiv(hidden, SPAN))](
        new if streams is None else streams, new, y, y if parts is None else parts, y if ids is None else ids,
        y if gates is None else gates, y if fn is None else fn, out.z, out.squares, tokens,
        hidden, n, 0 if parts is None else parts.shape[1], ids is not None, fn is not None,
        0 if fn is None else fn.shape[0], OUTPUTS, SPAN, COLUMNS, TOKENS, num_warps=4, num_stages=1,
    )  # fmt: skip


def embed(table: Tensor, ids: Tensor, streams: Tensor, fn: Tensor, out: Projection) -> None:
    """Fill the streams [T, n, C] with the tokens' embeddings and project them."""
    _launch(streams, table, None, fn, out, ids=ids, streams=None, gates=None)


def cross(streams: Tensor, output: Output, gates: Tensor, fn: Tensor | None, out: Projection) -> None:
    """Leave a sub-layer: new streams in place of the old [T, n, C], projected if a site follows.

    `gates` [T, (2 + n) n] are this site's.  Against the twin: 1e-5 relative.
    """
    _launch(streams, output.rows, output.slots, fn, out, ids=None, streams=streams, gates=gates)


@triton.jit
def _weigh(
    z, squares, scale, base, gates, tokens, width: tl.constexpr, n: tl.constexpr,
    eps: tl.constexpr, rms_eps: tl.constexpr, iterations: tl.constexpr, splits: tl.constexpr,
    wide: tl.constexpr, lines: tl.constexpr, pad: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64) * lines + tl.arange(0, lines)
    live = line < tokens
    column = tl.arange(0, pad)
    inside = live[:, None] & (column < n)[None, :]
    cell = (column[:, None] * n + column[None, :])[None, :, :]
    square = live[:, None, None] & ((column[:, None] < n) & (column[None, :] < n))[None, :, :]
    total = tl.zeros((lines,), tl.float32)
    pre = tl.zeros((lines, pad), tl.float32)
    post = tl.zeros((lines, pad), tl.float32)
    comb = tl.zeros((lines, pad, pad), tl.float32)
    for split in tl.static_range(splits):
        at = split * tokens + line
        total += tl.load(squares + at, mask=live, other=0.0)
        pre += tl.load(z + at[:, None] * wide + column[None, :], mask=inside, other=0.0)
        post += tl.load(z + at[:, None] * wide + n + column[None, :], mask=inside, other=0.0)
        comb += tl.load(z + at[:, None, None] * wide + 2 * n + cell, mask=square, other=0.0)
    root = tl.rsqrt(total / width + rms_eps)
    own = (column < n)[None, :]
    pre = pre * root[:, None] * tl.load(scale) + tl.load(base + column[None, :], mask=own, other=0.0)
    post = post * root[:, None] * tl.load(scale + 1) + tl.load(
        base + n + column[None, :], mask=own, other=0.0
    )
    out = gates + line[:, None] * ((2 + n) * n) + column[None, :]
    tl.store(out, tl.sigmoid(pre) + eps, mask=inside)
    tl.store(out + n, 2 * tl.sigmoid(post), mask=inside)
    comb = comb * root[:, None, None] * tl.load(scale + 2)
    comb += tl.load(base + 2 * n + cell, mask=square, other=0.0)
    comb = tl.where(square, comb, -1e30)
    comb = tl.where(square, tl.exp(comb - tl.max(comb, 2)[:, :, None]), 0.0)
    comb = tl.where(square, comb / tl.maximum(tl.sum(comb, 2), 1e-30)[:, :, None] + eps, 0.0)
    comb = comb / (tl.sum(comb, 1) + eps)[:, None, :]
    for _ in range(iterations - 1):
        comb = comb / (tl.sum(comb, 2) + eps)[:, :, None]
        comb = comb / (tl.sum(comb, 1) + eps)[:, None, :]
    tl.store(gates + line[:, None, None] * ((2 + n) * n) + 2 * n + cell, comb, mask=square)


def weigh(projection: Projection, site: Site, mixing: Mixing, gates: Tensor) -> None:
    """Gates [T, (2 + n) n] of projected streams: pre, post [n], comb [n, n]; 1e-5 relative to the twin."""
    splits, tokens, wide = projection.z.shape
    width = site.fn.shape[1]
    lines = 64
    _weigh[(triton.cdiv(tokens, lines),)](
        projection.z, projection.squares, site.scale, site.base, gates, tokens, width, mixing.count,
        mixing.eps, mixing.rms_eps, mixing.iterations, splits, wide, lines,
        triton.next_power_of_2(mixing.count),
    )  # fmt: skip


@triton.jit
def _enter(
    streams, gates, weight, bf16, fp16, eps: tl.constexpr, hidden: tl.constexpr,
    n: tl.constexpr, pad: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, pad)
    here = column < hidden
    x = tl.zeros((pad,), tl.float32)
    for j in tl.static_range(n):
        share = tl.load(gates + line * ((2 + n) * n) + j)
        x += share * tl.load(streams + (line * n + j) * hidden + column, mask=here, other=0.0)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / hidden + eps) * tl.load(weight + column, mask=here, other=0.0)
    tl.store(bf16 + line * hidden + column, narrow(x), mask=here)
    tl.store(fp16 + line * hidden + column, x.to(tl.float16), mask=here)


def enter(streams: Tensor, gates: Tensor, norm: Tensor, eps: float, bf16: Tensor, fp16: Tensor) -> None:
    """Normed input of a sub-layer [T, C] in BF16, and in float16 for products with float16 weights."""
    tokens, n, hidden = streams.shape
    _enter[(tokens,)](
        streams, gates, norm, bf16, fp16, eps, hidden, n, triton.next_power_of_2(hidden), num_warps=8
    )


def empty_projection(tokens: int, hidden: int, device: torch.device) -> Projection:
    """Room for the partial projections of `tokens` tokens."""
    splits = triton.cdiv(hidden, SPAN)
    return Projection(
        torch.empty(splits, tokens, OUTPUTS, device=device), torch.empty(splits, tokens, device=device)
    )
