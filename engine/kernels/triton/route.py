"""Routing of a decode step: experts and weights of every row, and which experts to read for which rows.

The same launch runs the shared expert's gated unit.  The choice is that of `engine.kernels.ref.moe`; a row's
experts stand in ascending order, so that their sum has one order.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.ref.moe import WEIGHT_FLOOR
from engine.kernels.ref.packed import Planes, Routes
from engine.kernels.triton.chain import follow
from engine.kernels.triton.numbers import split_scale, split_store

MOST_USED = 8  # experts of a row
FLOOR = tl.constexpr(WEIGHT_FLOOR)


@triton.jit
def router_score(logits):
    """sqrt(softplus(x))."""
    soft = tl.maximum(logits, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(logits)))
    return tl.sqrt(tl.where(logits > 20.0, logits, soft))


@triton.jit
def _choose(
    logits,
    logit_stride,
    bias,
    table,
    tokens,
    experts,
    weights,
    rows,
    count: tl.constexpr,
    used: tl.constexpr,
    HASHED: tl.constexpr,
    scale,
    lines: tl.constexpr,
):
    """Experts and weights of all rows; [lines, count] at once."""
    row = tl.arange(0, lines)
    live = row < rows
    expert = tl.arange(0, count)[None, :]
    logit = tl.load(logits + row[:, None] * logit_stride + expert, mask=live[:, None], other=0.0)
    score = router_score(logit)
    rank = score
    if not HASHED:
        rank = score + tl.load(bias + expert)
    else:
        token = tl.load(tokens + row, mask=live, other=0).to(tl.int64)
    sum = tl.zeros([lines], tl.float32)
    for k in tl.static_range(used):
        if HASHED:
            best = tl.load(table + token * used + k, mask=live, other=0)
        else:
            best = tl.argmax(rank, 1, tie_break_left=True)
        own = expert == best[:, None]
        rank = tl.where(own, float("-inf"), rank)
        mine = tl.sum(tl.where(own, score, 0.0), 1)
        sum += mine
        tl.store(experts + row * used + k, best, mask=live)
        tl.store(weights + row * used + k, mine, mask=live)
    tl.debug_barrier()
    # Ascending order: every slot moves to the place that its expert's rank among the row's experts gives it.
    slot = tl.arange(0, 8)
    inside = live[:, None] & (slot < used)[None, :]
    ids = tl.load(experts + row[:, None] * used + slot[None, :], mask=inside, other=1 << 20)
    mine = tl.load(weights + row[:, None] * used + slot[None, :], mask=inside, other=0.0)
    lower = (ids[:, None, :] < ids[:, :, None]) | (
        (ids[:, None, :] == ids[:, :, None]) & (slot[None, None, :] < slot[None, :, None])
    )
    place = tl.sum(lower.to(tl.int32), 2)
    tl.debug_barrier()
    tl.store(experts + row[:, None] * used + place, ids, mask=inside)
    share = mine / tl.maximum(sum, FLOOR)[:, None] * scale
    tl.store(weights + row[:, None] * used + place, share, mask=inside)
    tl.debug_barrier()


@triton.jit
def _plan(experts, active, counts, pairs, total, scratch, rows, used: tl.constexpr, room: tl.constexpr):
    """Groups of up to four pairs of one expert, in the order of their first pair."""
    size: tl.constexpr = 32 if room > 32 else room
    pair = tl.arange(0, room)
    live = pair < rows * used
    mine = tl.load(experts + pair, mask=live, other=-1)
    number = tl.zeros([room], tl.int32)  # of pairs of the same expert
    before = tl.zeros([room], tl.int32)  # of those, how many come earlier
    for start in range(0, room, size):
        other = start + tl.arange(0, size)
        theirs = tl.load(experts + other, mask=other < rows * used, other=-2)
        same = mine[:, None] == theirs[None, :]
        number += tl.sum(same.to(tl.int32), 1)
        before += tl.sum((same & (other[None, :] < pair[:, None])).to(tl.int32), 1)
    leads = live & (before % 4 == 0)
    group = tl.cumsum(leads.to(tl.int32), 0) - 1
    tl.store(active + group, mine, mask=leads)
    tl.store(counts + group, tl.minimum(number - before, 4), mask=leads)
    tl.store(total, tl.sum(leads.to(tl.int32), 0))
    tl.store(scratch + pair, tl.where(leads, before, -1), mask=live)
    tl.store(scratch + rows * used + pair, group, mask=live)
    tl.debug_barrier()
    home = tl.zeros([room], tl.int32)  # the group of the pair: that of the lead of its four
    for start in range(0, room, size):
        other = start + tl.arange(0, size)
        inside = other < rows * used
        theirs = tl.load(experts + other, mask=inside, other=-2)
        lead = tl.load(scratch + other, mask=inside, other=-1)
        at = tl.load(scratch + rows * used + other, mask=inside, other=0)
        own = (mine[:, None] == theirs[None, :]) & (lead[None, :] == (before // 4 * 4)[:, None])
        home += tl.sum(tl.where(own, at[None, :], 0), 1)
    tl.store(pairs + home * 4 + before % 4, pair, mask=live)


@triton.jit
def _route(
    logits,
    logit_stride,
    bias,
    table,
    tokens,
    experts,
    weights,
    active,
    counts,
    pairs,
    total,
    scratch,
    gates,
    ints,
    scales,
    rows,
    count: tl.constexpr,
    used: tl.constexpr,
    HASHED: tl.constexpr,
    scale,
    inner: tl.constexpr,
    limit,
    lines: tl.constexpr,
    room: tl.constexpr,
):
    follow()
    program = tl.program_id(0)
    if program == 0:
        _choose(
            logits,
            logit_stride,
            bias,
            table,
            tokens,
            experts,
            weights,
            rows,
            count,
            used,
            HASHED,
            scale,
            lines,
        )
        _plan(experts, active, counts, pairs, total, scratch, rows, used, room)
    else:
        row = ((program - 1) // (inner // 256)).to(tl.int64)
        block = (program - 1) % (inner // 256)
        column = block * 256 + tl.arange(0, 256)
        gate = tl.minimum(tl.load(gates + row * 2 * inner + column), limit)
        up = tl.load(gates + row * 2 * inner + inner + column)
        x = gate / (1.0 + tl.exp(-gate)) * tl.minimum(tl.maximum(up, -limit), limit)
        unit = split_scale(tl.max(tl.abs(x), 0))
        line = rows * used + row
        tl.store(scales + line * (inner // 256) + block, unit)
        split_store(x, unit, ints + line * inner * 2, column)


def route(
    logits: Tensor,
    bias: Tensor | None,
    hashed: tuple[Tensor, Tensor] | None,
    gates: Tensor,
    out: Routes,
    planes: Planes,
    *,
    scale: float,
    limit: float,
) -> None:
    """Routes of router logits [M, E] by score and `bias`, or by `hashed` (table [V, K], token ids [M]).

    `gates` [M, 2 F] is the shared expert's gate and up; its gated unit goes to the planes' rows M K .. M K +
    M.
    """
    rows, count = logits.shape
    used, inner = out.experts.shape[1], gates.shape[1] // 2
    table, tokens = hashed or (out.experts, out.experts)
    _route[(1 + rows * (inner // 256),)](
        logits,
        logits.stride(0),
        logits if bias is None else bias,
        table,
        tokens,
        out.experts,
        out.weights,
        out.active,
        out.counts,
        out.pairs,
        out.total,
        out.scratch,
        gates,
        planes.ints,
        planes.scales,
        rows,
        count,
        used,
        hashed is not None,
        scale,
        inner,
        limit,
        triton.next_power_of_2(max(rows, 2)),
        triton.next_power_of_2(rows * used),
        launch_pdl=True,
        num_warps=4,
    )
