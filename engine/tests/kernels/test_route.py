"""Routing of a decode step: the twin's experts and weights, and every pair in one group of its expert."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.ref import moe
from engine.kernels.ref.packed import PAIRS, Planes, Routes
from engine.kernels.triton.route import route

SCALE, LIMIT, INNER = 1.5, 10.0, 256


@pytest.mark.parametrize(("rows", "experts", "used"), [(1, 256, 6), (5, 16, 6), (20, 16, 3), (32, 32, 6)])
def test_experts_and_their_groups_are_those_of_the_twin(rows: int, experts: int, used: int) -> None:
    random = torch.Generator().manual_seed(rows)
    logits, bias = torch.randn(rows, experts, generator=random), torch.randn(experts, generator=random) * 0.1
    gates = torch.randn(rows, 2 * INNER, generator=random)
    out = Routes.empty(rows, used, logits.device)
    units = Planes.empty((rows * used + rows, INNER), logits.device)
    for _ in range(2):  # what one launch leaves behind must not disturb the next
        route(logits, bias, None, gates, out, units, scale=SCALE, limit=LIMIT)
    score = moe.scores(logits)
    chosen = moe.choose(score, bias, used).sort(-1).values
    groups = [
        (int(out.active[at]), out.pairs[at, : int(out.counts[at])].tolist()) for at in range(int(out.total))
    ]
    gate, up = gates.chunk(2, -1)
    shared = moe.glu(gate, up, LIMIT)

    assert torch.equal(chosen.int(), out.experts)
    torch.testing.assert_close(out.weights, moe.weights(score, chosen, SCALE))
    assert all(1 <= len(pairs) <= PAIRS for _, pairs in groups)
    assert all(out.experts.flatten()[pair] == expert for expert, pairs in groups for pair in pairs)
    assert sorted(pair for _, pairs in groups for pair in pairs) == list(range(rows * used))
    torch.testing.assert_close(
        units.integers()[rows * used :], shared, rtol=0.0, atol=3e-4
    )  # 16 bits of values around 9
