"""The indexer over a chunk against its twins: rounding, scores, choices."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.ref import index as twin
from engine.kernels.ref import rope, rounding
from engine.kernels.ref.norm import rms_norm
from engine.kernels.ref.rows import pack_index, unpack_index
from engine.kernels.rows import IndexLayout
from engine.kernels.triton.prefill import index
from engine.kernels.triton.prefill.rows import Finish
from engine.tests.kernels.prefill.cases import DEVICE, FULL, SMALL, Case, Random, differing, worst

EPS = 1e-6


def _signs(case: Case) -> torch.Tensor:
    return rounding.hadamard(torch.eye(case.index_width)).sign().to(DEVICE, torch.bfloat16)


def check_rounding(case: Case) -> None:
    random, width = Random(5), case.index_width
    rope_width = min(case.rope, width // 2)
    freqs = rope.frequencies(rope_width, 10000.0).to(DEVICE)
    cos, sin = rope.cos_sin(torch.arange(case.tokens, device=DEVICE) * 5, freqs)
    raw, weight = random.normal(case.tokens, width), 1 + random.normal(width, spread=0.2)
    queries = random.normal(case.tokens, case.index_heads, width)
    turned = rope.rotate_by(rms_norm(raw, weight, EPS), cos, sin)
    layout = IndexLayout(width)
    wanted = pack_index(rounding.hadamard(turned))
    spun = rope.rotate_by(queries, cos.unsqueeze(1), sin.unsqueeze(1))
    at = random.order(case.tokens + 2)[: case.tokens]

    packed = torch.zeros(case.tokens + 2, layout.nbytes, dtype=torch.uint8, device=DEVICE)
    index.finish(raw, Finish(weight, EPS, cos, sin), _signs(case), at, packed)
    wide = torch.empty(queries.shape, dtype=torch.bfloat16, device=DEVICE)
    index.queries(queries, cos, sin, _signs(case), wide)
    back = torch.empty(case.tokens, width, dtype=torch.bfloat16, device=DEVICE)
    index.unpack(packed, at, back)

    assert differing(packed[at.long()], wanted) < 5e-3
    assert differing(wide.float(), rounding.fp4_round(rounding.hadamard(spun))) < 5e-3
    assert torch.equal(back.float(), unpack_index(packed[at.long()], layout))


def check_scores(case: Case) -> None:
    random, causal = Random(6), index.Causal(case.topk * 4 + 3, 4)
    rows = causal.rows(case.tokens)
    q = rounding.fp4_round(random.normal(case.tokens, case.index_heads, case.index_width))
    keys = rounding.fp4_round(random.normal(rows, case.index_width))
    weights = random.normal(case.tokens, case.index_heads + 3)[:, 3:]
    scale = (case.index_heads * case.index_width) ** -0.5
    wanted = twin.scores(q, keys, weights * scale)
    shown = torch.arange(case.tokens, device=DEVICE).add(causal.first + 1).div(4, rounding_mode="floor")
    seen = torch.arange(rows, device=DEVICE) < shown.unsqueeze(1)

    found = index.empty_scores(case.tokens, rows, DEVICE)
    index.scores(q.bfloat16(), keys.bfloat16(), weights, causal, found)

    assert worst(found[:, :rows][seen], wanted[seen]) < 1e-5


def check_choice(tokens: int, k: int, *, kinds: int, first: int) -> None:
    """The `kinds` different scores make ties; the tokens' rows end inside and beyond one scan."""
    random, causal = Random(7), index.Causal(first, 4)
    rows = causal.rows(tokens)
    score = random.whole(-kinds, kinds, tokens, rows).float() / 3
    wanted = torch.full((tokens, k), -1, dtype=torch.int32)
    for token in range(tokens):
        seen = min((first + token + 1) // 4, rows)
        best = torch.sort(score[token, :seen].cpu(), descending=True, stable=True).indices[:k]
        wanted[token, : len(best)] = best.sort().values.int()

    chosen = torch.empty(tokens, k, dtype=torch.int32, device=DEVICE)
    index.select(score, causal, k, chosen)

    assert torch.equal(chosen.cpu(), wanted)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_index_rows_and_queries_round_as_the_twin(case: Case) -> None:
    check_rounding(case)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_scores_equal_the_twin(case: Case) -> None:
    check_scores(case)


@pytest.mark.parametrize(("k", "first"), [(5, 13), (12, 40), (16, 8300)])
@pytest.mark.parametrize("kinds", [2, 10**6])
def test_the_best_visible_rows_are_chosen_in_ascending_order(k: int, first: int, kinds: int) -> None:
    check_choice(9, k, kinds=kinds, first=first)


@pytest.mark.device
@pytest.mark.parametrize("case", FULL, ids=lambda case: case.name)
def test_the_indexer_on_a_device(case: Case) -> None:
    check_rounding(case)
    check_scores(case)
    for kinds in (2, 300, 10**6):
        check_choice(50, case.topk, kinds=kinds, first=4 * case.topk - 20)
        check_choice(50, case.topk, kinds=kinds, first=60000)
