"""Routed experts of a chunk against their twins: choice, grouping, both products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels import layouts
from engine.kernels.layouts import IQ2, Q2
from engine.kernels.ref import moe
from engine.kernels.triton.prefill import experts
from engine.tests.kernels.prefill.cases import DEVICE, FULL, SMALL, Case, Random, worst


def check_choice(case: Case) -> None:
    random = Random(11)
    logits, bias = random.normal(case.tokens, case.experts, spread=3.0), random.normal(case.experts)
    logits[0, 0] = 30.0
    score = moe.scores(logits)
    chosen = moe.choose(score, bias, case.used).sort(-1).values
    rows = [random.order(case.experts)[: case.used] for _ in range(20)]
    table, ids = torch.stack(rows), random.whole(0, 20, case.tokens)
    listed = table[ids.long()].long().sort(-1).values

    scored = experts.route(logits, case.used, 1.5, bias=bias)
    hashed = experts.route(logits, case.used, 1.5, table=table, ids=ids)

    assert torch.equal(scored.experts.long(), chosen)
    assert torch.equal(hashed.experts.long(), listed)
    assert worst(scored.weights, moe.weights(score, chosen, 1.5)) < 1e-5
    assert worst(hashed.weights, moe.weights(score, listed, 1.5)) < 1e-5


def check_grouping(tokens: int, count: int, used: int, *, alike: bool) -> None:
    random = Random(12)
    rows = [random.order(count)[:used].sort().values for _ in range(tokens)]
    chosen = torch.stack(rows[:1] * tokens if alike else rows)
    groups = experts.group(experts.Choice(chosen, chosen.float()), count)
    covered: list[int] = []
    for expert, start, stop in zip(
        groups.expert.tolist(), groups.start.tolist(), groups.stop.tolist(), strict=True
    ):
        assert 0 <= stop - start <= groups.height
        slots = groups.order[start:stop].long()
        assert (chosen.flatten()[slots] == expert).all()
        covered += slots.tolist()

    assert sorted(covered) == list(range(tokens * used))


def check_products(case: Case) -> None:
    random, e = Random(13), case.experts
    up = layouts.split_iq2(random.blocks((e, 2 * case.inner, case.hidden // 256), 66, {0: 0.001}))
    down = layouts.split_q2(random.blocks((e, case.hidden, case.inner // 256), 84, {80: 0.005, 82: 0.01}))
    h = random.normal(case.tokens, case.hidden).half()
    choice = experts.route(random.normal(case.tokens, e), case.used, 1.5, bias=random.normal(e))
    groups = experts.group(choice, e)
    wanted_inner, wanted = _twins(h, choice, up, down)

    inner = experts.enter(h, choice, groups, up, experts.codebook(DEVICE), 10.0)
    out = experts.leave(inner, groups, down).view(case.tokens, case.used, -1)

    assert worst(inner, wanted_inner.flatten(0, 1)[groups.order.long()]) < 2e-3
    assert worst(out, wanted) < 5e-3


def _twins(h: Tensor, choice: experts.Choice, up: IQ2, down: Q2) -> tuple[Tensor, Tensor]:
    """Gated units [T, K, F] and outputs [T, K, C], expert by expert in float32."""
    tokens, used = choice.experts.shape
    hidden, half = h.shape[1], up.scales.shape[1] * 8
    inner, out = h.new_zeros(tokens, used, half).float(), h.new_zeros(tokens, used, hidden).float()
    for expert in choice.experts.unique().tolist():
        token, slot = (choice.experts == expert).nonzero(as_tuple=True)
        matrix = layouts.decode_iq2(IQ2(up.words[expert], up.scales[expert]))
        gate, second = (h[token].float() @ matrix.t()).chunk(2, -1)
        inner[token, slot] = moe.glu(gate, second, 10.0) * choice.weights[token, slot].unsqueeze(1)
        matrix = layouts.decode_q2(Q2(down.words[expert], down.minors[expert], down.scales[expert]))
        out[token, slot] = inner[token, slot] @ matrix.t()
    return inner, out


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_experts_are_chosen_and_weighed_as_the_twin_does(case: Case) -> None:
    check_choice(case)


@pytest.mark.parametrize("alike", [False, True])
def test_tiles_cover_every_slot_once_with_one_expert_each(alike: bool) -> None:
    check_grouping(50, 5, 2, alike=alike)
    check_grouping(1, 7, 3, alike=alike)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_routed_experts_compute_what_the_twin_computes(case: Case) -> None:
    check_products(case)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_experts_expanded_beforehand_give_the_same_units(case: Case) -> None:
    random, e = Random(14), case.experts
    up = layouts.split_iq2(random.blocks((e, 2 * case.inner, case.hidden // 256), 66, {0: 0.001}))
    h = random.normal(case.tokens, case.hidden).half()
    choice = experts.route(random.normal(case.tokens, e), case.used, 1.5, bias=random.normal(e))
    groups = experts.group(choice, e)
    wanted = experts.enter(h, choice, groups, up, experts.codebook(DEVICE), 10.0)
    found, weights = torch.full_like(wanted, torch.nan), (64 * layouts.decode_iq2(up)).half()
    for first in range(0, e, 3):
        part = weights[first : first + 3].contiguous()
        experts.enter_expanded(h, choice, groups, part, first, 10.0, found)

    assert worst(found, wanted) < 2e-3


@pytest.mark.device
@pytest.mark.parametrize("case", FULL, ids=lambda case: case.name)
def test_routed_experts_on_a_device(case: Case) -> None:
    check_choice(case)
    check_grouping(4096, case.experts, case.used, alike=False)
    check_products(case)
