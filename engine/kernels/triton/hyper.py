"""Hyper-connections of a decode step: leave one sub-layer and enter the next.

`cross` writes the new residual streams and, a column block a program, their part of the next projection;
`enter` adds the parts up in order and hands the normed input on as planes; `balance` prepares the way back.
The mathematics is that of `engine.kernels.ref.hyper`; the model's four streams are written out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.ref.packed import Planes
from engine.kernels.triton.chain import follow
from engine.kernels.triton.numbers import halves_store, split_scale, split_store

STREAMS = 4
CUT = 128  # columns of a program of `cross`
BLOCK = 256  # columns of a program of `enter`: one block of the planes


@dataclass(frozen=True, slots=True)
class Work:
    """What the launches hand each other for up to `rows` rows."""

    partial: Tensor  # float32 [rows, cuts, 32]: products with the projection, then the sum of squares at 31
    post: Tensor  # float32 [rows, 4]
    comb: Tensor  # float32 [rows, 4, 4]

    @classmethod
    def empty(cls, rows: int, hidden: int, device: torch.device) -> Work:
        """Room for a step."""
        return cls(
            torch.zeros(rows, hidden // CUT, 32, device=device),
            torch.zeros(rows, STREAMS, device=device),
            torch.zeros(rows, STREAMS, STREAMS, device=device),
        )


@dataclass(frozen=True, slots=True)
class Site:
    """Weights of one site: projection float16 [outputs, 4 * hidden], scales [3] or [1], base, norm weight."""

    fn: Tensor
    scale: Tensor
    base: Tensor
    norm: Tensor


@triton.jit
def _leave(y, a0, a1, a2, a3, post, comb):
    """One new stream: post y + sum over j of comb[j, k] stream j; `comb` points at [0, k]."""
    mixed = tl.load(comb) * a0 + tl.load(comb + 4) * a1 + tl.load(comb + 8) * a2 + tl.load(comb + 12) * a3
    return tl.load(post) * y + mixed


@triton.jit
def _project(fn, x, which, column, hidden: tl.constexpr, outputs: tl.constexpr):
    """Products [32] of one stream's columns with the projection's rows."""
    line = tl.arange(0, 32)[:, None]
    weight = tl.load(
        fn + line * (4 * hidden) + which * hidden + column[None, :], mask=line < outputs, other=0.0
    )
    return tl.sum(weight.to(tl.float32) * x[None, :], 1)


@triton.jit
def _cross(
    streams,
    table,
    tokens,
    parts,
    post,
    comb,
    fn,
    partial,
    rows,
    hidden: tl.constexpr,
    outputs: tl.constexpr,
    used: tl.constexpr,
    FIRST: tl.constexpr,
    WIDTH: tl.constexpr,
):
    follow()
    row = tl.program_id(0).to(tl.int64)
    cut = tl.program_id(1)
    column = cut * WIDTH + tl.arange(0, WIDTH)
    base = streams + row * 4 * hidden + column
    if FIRST:
        token = tl.load(tokens + row).to(tl.int64)
        x0 = tl.load(table + token * hidden + column).to(tl.float32)
        x1 = x0
        x2 = x0
        x3 = x0
    else:
        if used == 0:
            y = tl.load(parts + row * hidden + column)
        else:
            y = tl.load(parts + row * used * hidden + column)
            for k in tl.static_range(1, used):
                y += tl.load(parts + (row * used + k) * hidden + column)
            y = tl.load(parts + (rows * used + row) * hidden + column) + y
        a0 = tl.load(base)
        a1 = tl.load(base + hidden)
        a2 = tl.load(base + 2 * hidden)
        a3 = tl.load(base + 3 * hidden)
        c = comb + row * 16
        p = post + row * 4
        x0 = _leave(y, a0, a1, a2, a3, p, c)
        x1 = _leave(y, a0, a1, a2, a3, p + 1, c + 1)
        x2 = _leave(y, a0, a1, a2, a3, p + 2, c + 2)
        x3 = _leave(y, a0, a1, a2, a3, p + 3, c + 3)
    tl.store(base, x0)
    tl.store(base + hidden, x1)
    tl.store(base + 2 * hidden, x2)
    tl.store(base + 3 * hidden, x3)
    z = _project(fn, x0, 0, column, hidden, outputs) + _project(fn, x1, 1, column, hidden, outputs)
    z += _project(fn, x2, 2, column, hidden, outputs) + _project(fn, x3, 3, column, hidden, outputs)
    square = tl.sum(x0 * x0 + x1 * x1 + x2 * x2 + x3 * x3, 0)
    line = tl.arange(0, 32)
    at = partial + (row * (hidden // WIDTH) + cut) * 32 + line
    tl.store(at, tl.where(line == 31, square, z))


def cross(
    streams: Tensor,
    site: Site,
    work: Work,
    *,
    parts: Tensor | None = None,
    used: int = 0,
    embedding: tuple[Tensor, Tensor] | None = None,
) -> None:
    """New streams [M, 4, C] in place, and the partial projections of `site` in `work`.

    `parts` is what the sub-layer left behind: [M, C], or with `used` experts a row [M used + M, C], pairs
    before the shared expert's rows.  `embedding` is (table, token ids [M]) where a step begins instead.
    """
    rows, _, hidden = streams.shape
    table, tokens = embedding or (streams, streams)
    _cross[(rows, hidden // CUT)](
        streams,
        table,
        tokens,
        streams if parts is None else parts,
        work.post,
        work.comb,
        site.fn,
        work.partial,
        rows,
        hidden,
        site.fn.shape[0],
        used,
        embedding is not None,
        CUT,
        num_warps=4,
    )


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _collected(partial, first, cuts: tl.constexpr, inverse):
    """Four projections from `first` on, summed over the cuts, times the inverse norm."""
    cut = tl.arange(0, cuts)[:, None]
    return tl.sum(tl.load(partial + cut * 32 + first + tl.arange(0, 4)[None, :]), 0) * inverse


@triton.jit
def _soft(r, eps):
    e = tl.exp(r - tl.max(r, 0))
    return e / tl.sum(e, 0) + eps


@triton.jit
def _inverse(partial, cuts: tl.constexpr, width: tl.constexpr, eps):
    """Inverse root mean square of all streams of a row."""
    square = tl.sum(tl.load(partial + tl.arange(0, cuts) * 32 + 31), 0)
    return 1.0 / tl.sqrt(square / width + eps)


@triton.jit
def _enter(
    streams,
    partial,
    scale,
    base,
    norm,
    ints,
    int_scales,
    halves,
    hidden: tl.constexpr,
    cuts: tl.constexpr,
    HALVES: tl.constexpr,
    hc_eps,
    rms_eps,
):
    follow()
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    partial += row * cuts * 32
    inverse = _inverse(partial, cuts, 4 * hidden, rms_eps)
    four = tl.arange(0, 4)
    pre = _sigmoid(_collected(partial, 0, cuts, inverse) * tl.load(scale) + tl.load(base + four)) + hc_eps
    x = streams + row * 4 * hidden + four[:, None] * hidden
    whole = tl.sum(pre[:, None] * tl.load(x + tl.arange(0, hidden)[None, :]), 0)
    root = 1.0 / tl.sqrt(tl.sum(whole * whole, 0) / hidden + rms_eps)
    column = block * 256 + tl.arange(0, 256)
    h = tl.sum(pre[:, None] * tl.load(x + column[None, :]), 0) * root * tl.load(norm + column)
    unit = split_scale(tl.max(tl.abs(h), 0))
    tl.store(int_scales + row * (hidden // 256) + block, unit)
    split_store(h, unit, ints + row * hidden * 2, column)
    if HALVES:
        halves_store(h, halves + row * hidden * 2, column)


def enter(streams: Tensor, site: Site, work: Work, out: Planes, *, hc_eps: float, rms_eps: float) -> None:
    """Normed input of the sub-layer from streams [M, 4, C] and the partial projections."""
    rows, _, hidden = streams.shape
    _enter[(rows, hidden // BLOCK)](
        streams,
        work.partial,
        site.scale,
        site.base,
        site.norm,
        out.ints,
        out.scales,
        out.halves,
        hidden,
        hidden // CUT,
        out.halves is not None,
        hc_eps,
        rms_eps,
        launch_pdl=True,
        num_warps=8,
    )


@triton.jit
def _balance(
    partial,
    scale,
    base,
    post,
    comb,
    hidden: tl.constexpr,
    cuts: tl.constexpr,
    iterations: tl.constexpr,
    hc_eps,
    rms_eps,
):
    row = tl.program_id(0).to(tl.int64)
    partial += row * cuts * 32
    inverse = _inverse(partial, cuts, 4 * hidden, rms_eps)
    four = tl.arange(0, 4)
    after = _sigmoid(_collected(partial, 4, cuts, inverse) * tl.load(scale + 1) + tl.load(base + 4 + four))
    tl.store(post + row * 4 + four, 2.0 * after)
    s = tl.load(scale + 2)
    r0 = _soft(_collected(partial, 8, cuts, inverse) * s + tl.load(base + 8 + four), hc_eps)
    r1 = _soft(_collected(partial, 12, cuts, inverse) * s + tl.load(base + 12 + four), hc_eps)
    r2 = _soft(_collected(partial, 16, cuts, inverse) * s + tl.load(base + 16 + four), hc_eps)
    r3 = _soft(_collected(partial, 20, cuts, inverse) * s + tl.load(base + 20 + four), hc_eps)
    total = r0 + r1 + r2 + r3 + hc_eps
    r0, r1, r2, r3 = r0 / total, r1 / total, r2 / total, r3 / total
    for _ in range(iterations - 1):
        r0 = r0 / (tl.sum(r0, 0) + hc_eps)
        r1 = r1 / (tl.sum(r1, 0) + hc_eps)
        r2 = r2 / (tl.sum(r2, 0) + hc_eps)
        r3 = r3 / (tl.sum(r3, 0) + hc_eps)
        total = r0 + r1 + r2 + r3 + hc_eps
        r0, r1, r2, r3 = r0 / total, r1 / total, r2 / total, r3 / total
    to = comb + row * 16 + four
    tl.store(to, r0)
    tl.store(to + 4, r1)
    tl.store(to + 8, r2)
    tl.store(to + 12, r3)


def balance(site: Site, work: Work, *, hidden: int, iterations: int, hc_eps: float, rms_eps: float) -> None:
    """How the sub-layer's output is written back: `work.post` and the balanced `work.comb`.

    Needed only when the sub-layer is done, so it runs beside it.
    """
    _balance[(len(work.post),)](
        work.partial,
        site.scale,
        site.base,
        work.post,
        work.comb,
        hidden,
        hidden // CUT,
        iterations,
        hc_eps,
        rms_eps,
        num_warps=1,
    )
