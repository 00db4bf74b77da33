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
    bias,
    table,
    token,
    experts,
    weights,
    count: tl.constexpr,
    used: tl.constexpr,
    HASHED: tl.constexpr,
    scale,
):
    """Experts and weights of one row; a loop, because what runs once waits for its instructions."""
    expert = tl.arange(0, count)
    score = router_score(tl.load(logits + expert))
    rank = score
    if not HASHED:
        rank = score + tl.load(bias + expert)
    sum = tl.full([], 0.0, tl.float32)
    for k in range(used):
        best = tl.load(table + token * used + k) if HASHED else tl.argmax(rank, 0, tie_break_left=True)
        own = expert == best
        rank = tl.where(own, float("-inf"), rank)
        mine = tl.sum(tl.where(own, score, 0.0), 0)
        sum += mine
        tl.store(experts + k, best)
        tl.store(weights + k, mine)
    tl.debug_barrier()
    # Ascending order: every slot moves to the place that its expert's rank among the row's experts gives it.
    slot = tl.arange(0, 8)
    inside = slot < used
    ids = tl.load(experts + slot, mask=inside, other=1 << 20)
    mine = tl.load(weights + slot, mask=inside, other=0.0)
    lower = (ids[None, :] < ids[:, None]) | ((ids[None, :] == ids[:, None]) & (slot[None, :] < slot[:, None]))
    place = tl.sum(lower.to(tl.int32), 1)
    tl.debug_barrier()
    tl.store(experts + place, ids, mask=inside)
    tl.store(weights + place, mine / tl.maximum(sum, FLOOR) * scale, mask=inside)
    tl.debug_barrier()


@triton.jit
def _plan(experts, active, counts, pairs, total, scratch, slots, room: tl.constexpr):
    """Groups of up to four of `slots` pairs of one expert, in the order of their first pair."""
    size: tl.constexpr = room if room <= 32 else 16
    pair = tl.arange(0, room)
    live = pair < slots
    mine = tl.load(experts + pair, mask=live, other=-1)
    both = tl.zeros([room], tl.int32)  # pairs of the same expert, and times 2^16 those that come earlier
    for start in range(0, room, size):
        other = start + tl.arange(0, size)
        theirs = tl.load(experts + other, mask=other < slots, other=-2)
        earlier = (other[:, None] < pair[None, :]).to(tl.int32)
        both += tl.sum(tl.where(theirs[:, None] == mine[None, :], 1 + (earlier << 16), 0), 0)
    number, before = both & 0xFFFF, both >> 16
    leads = live & (before % 4 == 0)
    group = tl.cumsum(leads.to(tl.int32), 0) - 1
    tl.store(active + group, mine, mask=leads)
    tl.store(counts + group, tl.minimum(number - before, 4), mask=leads)
    tl.store(total, tl.sum(leads.to(tl.int32), 0))
    tl.store(scratch + pair, tl.where(leads, before, -1), mask=live)
    tl.store(scratch + slots + pair, group, mask=live)
    tl.debug_barrier()
    home = tl.zeros([room], tl.int32)  # the group of the pair: that of the lead of its four
    for start in range(0, room, size):
        other = start + tl.arange(0, size)
        inside = other < slots
        theirs = tl.load(experts + other, mask=inside, other=-2)
        lead = tl.load(scratch + other, mask=inside, other=-1)
        at = tl.load(scratch + slots + other, mask=inside, other=0)
        own = (theirs[:, None] == mine[None, :]) & (lead[:, None] == (before // 4 * 4)[None, :])
        home += tl.sum(tl.where(own, at[:, None], 0), 0)
    tl.store(pairs + home * 4 + before % 4, pair, mask=live)


@triton.jit
def _shared(gates, ints, scales, rows, index, used: tl.constexpr, inner: tl.constexpr, limit):
    """One block of the shared expert's gated unit, as planes."""
    row = (index // (inner // 256)).to(tl.int64)
    block = index % (inner // 256)
    column = block * 256 + tl.arange(0, 256)
    gate = tl.minimum(tl.load(gates + row * 2 * inner + column), limit)
    up = tl.load(gates + row * 2 * inner + inner + column)
    x = gate / (1.0 + tl.exp(-gate)) * tl.minimum(tl.maximum(up, -limit), limit)
    unit = split_scale(tl.max(tl.abs(x), 0))
    line = rows * used + row
    tl.store(scales + line * (inner // 256) + block, unit)
    split_store(x, unit, ints + line * inner * 2, column)


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
    room: tl.constexpr,
):
    follow()
    row = tl.program_id(0)
    if row >= rows:
        _shared(gates, ints, scales, rows, row - rows, used, inner, limit)
    else:
        token = row
        if HASHED:
            token = tl.load(tokens + row).to(tl.int64)
        own_experts, own_weights = experts + row * used, weights + row * used
        _choose(
            logits + row * logit_stride,
            bias,
            table,
            token,
            own_experts,
            own_weights,
            count,
            used,
            HASHED,
            scale,
        )
        # Whoever chooses last sees all choices and makes the plan; its count is at zero again for the next.
        arrived = scratch + 2 * rows * used
        if tl.atomic_add(arrived, 1) == rows - 1:
            tl.store(arrived, 0)
            _plan(experts, active, counts, pairs, total, scratch, rows * used, room)


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
    _route[(rows + rows * (inner // 256),)](
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
        triton.next_power_of_2(rows * used),
        launch_pdl=True,
        num_warps=4,
    )
