"""Drawing on the device gives the tokens of `engine.sampling`, whatever a row's rule, logits and company."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.core import SamplingParams
from engine.kernels.triton.nucleus import MOST_VOCAB, TILE, Rules, Work
from engine.kernels.triton.sample import _random
from engine.kernels.triton.sample import sample as draw
from engine.model.published import SPECS
from engine.sampling import sample, uniform
from engine.tests.kernels.prefill.cases import DEVICE, Random

INF = float("inf")
PARAMS = (
    SamplingParams(0.0),
    SamplingParams(1.0),
    SamplingParams(0.6, top_p=0.95),
    SamplingParams(0.8, top_p=0.9, top_k=40),
    SamplingParams(1.5, min_p=0.05),
    SamplingParams(1.0, top_k=1),
    SamplingParams(8.0, top_p=0.999),
    SamplingParams(2.0, top_p=0.5, top_k=1500, min_p=0.001),
)


def rules_of(params: Sequence[SamplingParams], seeds: Sequence[int], vocab: int) -> Rules:
    rules = Rules.greedy(len(params), vocab, DEVICE)
    for name in ("temperature", "top_p", "min_p", "top_k"):
        getattr(rules, name).copy_(torch.tensor([getattr(at, name) for at in params], dtype=torch.float64))
    rules.seed.copy_(torch.tensor([(seed + 2**63) % 2**64 - 2**63 for seed in seeds]))
    return rules


def drawn(logits: Tensor, rules: Rules, positions: Tensor) -> list[int]:
    rows, vocab = logits.shape
    return draw(logits, rules, positions, Work.empty(rows, vocab, DEVICE)).tolist()


def expected(
    logits: Tensor, params: Sequence[SamplingParams], seeds: Sequence[int], after: Tensor
) -> list[int]:
    rows = zip(logits.cpu().numpy(), params, seeds, after.tolist(), strict=True)
    return [sample(row, one, seed=seed, position=at + 1) for row, one, seed, at in rows]


def check_draws(vocab: int, params: Sequence[SamplingParams], seeds: range) -> None:
    """Smooth logits, and rounded ones with many ties; a row alone draws what it draws among others."""
    for seed in seeds:
        random = Random(seed)
        logits = random.normal(len(params), vocab, spread=3.0)
        logits[::2] = logits[::2].round() / 2
        after, keys = random.whole(0, 1 << 20, len(params)), [seed * 1000 + at for at in range(len(params))]
        rules = rules_of(params, keys, vocab)
        found, last = drawn(logits, rules, after), slice(len(params) - 1, None)
        alone = Rules(*(getattr(rules, field.name)[last] for field in fields(Rules)))

        assert found == expected(logits, params, keys, after)
        assert drawn(logits[last], alone, after[last]) == found[last]


@pytest.mark.parametrize("vocab", [pytest.param(2 * TILE + 77, id="tiles"), pytest.param(300, id="one_tile")])
def test_tokens_are_those_of_the_twin(vocab: int) -> None:
    check_draws(vocab, PARAMS, range(1))


@pytest.mark.device
@pytest.mark.parametrize("rows", [1, 5, 32])
def test_tokens_on_a_device(rows: int) -> None:
    check_draws(SPECS["v4-flash"].vocab, [PARAMS[(at + rows) % len(PARAMS)] for at in range(rows)], range(8))


VALUES = st.sampled_from([-INF, -30.0, -2.0, -1.0, -0.0, 0.0, 0.25, 3.0, 3.0000002])


@settings(max_examples=15)
@given(
    st.lists(VALUES, min_size=1, max_size=40).filter(lambda values: max(values) > -INF),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1e-300, 0.3, 1.0, 50.0]),
        top_p=st.sampled_from([0.0, 0.37, 0.9, 1.0]),
        top_k=st.sampled_from([0, 1, 3, 40]),
        min_p=st.sampled_from([0.0, 0.03, 1.0]),
    ),
    st.integers(-(2**63), 2**64 - 1),
)
def test_ties_and_missing_tokens_are_drawn_as_the_twin_draws_them(
    values: list[float], params: SamplingParams, seed: int
) -> None:
    logits, after = torch.tensor([values], device=DEVICE), torch.tensor([3], dtype=torch.int32, device=DEVICE)
    rules = rules_of([params], [seed], len(values))

    assert drawn(logits, rules, after) == expected(logits, [params], [seed], after)


def check_edges() -> None:
    """One row each: what may be drawn is masked, and the logits may be no numbers."""
    nan = float("nan")
    rows = [[1.0, 5.0, 2.0], [1.0, nan, 2.0], [1.0, nan, 2.0], [-INF] * 3, [1.0, INF, 2.0], [0.0, 0.0, 0.0]]
    logits = torch.tensor(rows + rows, device=DEVICE)
    params = [SamplingParams(0.0)] * len(rows) + [SamplingParams(1.0)] * len(rows)
    rules = rules_of(params, range(12), 3)
    allowed = [0b101, 0b111, 0b101, 0b111, 0b111, 0b000]
    rules.allowed.copy_(torch.tensor(allowed + allowed, dtype=torch.int32).unsqueeze(1))
    after = torch.zeros(12, dtype=torch.int32, device=DEVICE)
    found = drawn(logits, rules, after)

    assert found[:6] == [2, -1, 2, -1, -1, -1]
    masked = [logits[at].clone() for at in (6, 8)]
    for row in masked:
        row[1] = -INF
    assert [found[6], found[8]] == expected(torch.stack(masked), params[6:8], [6, 8], after[:2])
    assert [found[at] for at in (7, 9, 10, 11)] == [-1] * 4


def test_masked_tokens_are_never_drawn_and_rows_without_a_finite_one_say_so() -> None:
    check_edges()


@triton.jit
def _numbers(seeds, positions, out, count: tl.constexpr):
    at = tl.arange(0, count)
    tl.store(out + at, _random(tl.load(seeds + at), tl.load(positions + at)).to(tl.int64, bitcast=True))


def check_numbers() -> None:
    seeds = [0, 1, -1, 2**63 - 1, -(2**63), *torch.randint(-(2**63), 2**63 - 1, (59,)).tolist()]
    positions = Random(2).whole(0, 2**31 - 1, 64)
    out = torch.zeros(64, dtype=torch.int64, device=DEVICE)
    _numbers[(1,)](torch.tensor(seeds, device=DEVICE), positions, out, 64)
    wanted = [uniform(seed=seed, position=at) for seed, at in zip(seeds, positions.tolist(), strict=True)]

    assert [(number % 2**64) * 2.0**-64 for number in out.tolist()] == wanted


def test_the_numbers_are_those_of_the_twin() -> None:
    check_numbers()


@pytest.mark.device
def test_edges_and_numbers_on_a_device() -> None:
    check_edges()
    check_numbers()


def check_shares(rows: int, vocab: int) -> None:
    """Pearson's statistic over as many draws as rows, each with its own seed, against the rule's own law."""
    params, spread = SamplingParams(1.3, top_p=0.9), Random(4).normal(vocab, spread=1.5)
    found = drawn(
        spread.repeat(rows, 1), rules_of([params] * rows, range(rows), vocab), Random(5).whole(0, 9, rows)
    )
    weights = np.exp(spread.cpu().numpy().astype(np.float64) / params.temperature)
    order = np.argsort(-weights)
    kept = order[: int(np.searchsorted(np.cumsum(weights[order]), params.top_p * weights.sum())) + 1]
    wanted = weights[kept] / weights[kept].sum() * rows
    counts = np.bincount(found, minlength=vocab)
    statistic = float(((counts[kept] - wanted) ** 2 / wanted).sum())
    free = len(kept) - 1

    assert counts[kept].sum() == rows
    assert statistic < free + 4 * (2 * free) ** 0.5  # beyond four standard deviations


def test_shares_are_those_of_the_rule() -> None:
    check_shares(40, 4)


@pytest.mark.device
def test_shares_on_a_device() -> None:
    check_shares(20000, 200)


def check_greedy(rows: int, vocab: int) -> None:
    logits = Random(6).normal(rows, vocab).round()
    after = torch.zeros(rows, dtype=torch.int32, device=DEVICE)

    assert drawn(logits, Rules.greedy(rows, vocab, DEVICE), after) == logits.cpu().numpy().argmax(1).tolist()


def test_temperature_zero_takes_the_first_of_the_likeliest() -> None:
    check_greedy(3, TILE + 5)


@pytest.mark.device
def test_temperature_zero_on_a_device() -> None:
    check_greedy(32, SPECS["v4-flash"].vocab)


def test_a_vocabulary_beyond_the_weights_is_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_VOCAB}"):
        Work.empty(1, MOST_VOCAB + 1, DEVICE)


@pytest.mark.device
def test_a_captured_draw_follows_its_rules() -> None:
    vocab, after = SPECS["v4-flash"].vocab, torch.zeros(2, dtype=torch.int32, device=DEVICE)
    logits, rules = Random(7).normal(2, vocab, spread=3.0), Rules.greedy(2, vocab, DEVICE)
    work = Work.empty(2, vocab, DEVICE)
    draw(logits, rules, after, work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        draw(logits, rules, after, work)
    for seed, params in enumerate(PARAMS):
        changed = rules_of([params, SamplingParams(1.0)], [seed, seed + 9], vocab)
        for field in fields(Rules):
            getattr(rules, field.name).copy_(getattr(changed, field.name))
        after += 1
        graph.replay()

        assert work.drawn.tolist() == expected(logits, [params, SamplingParams(1.0)], [seed, seed + 9], after)
