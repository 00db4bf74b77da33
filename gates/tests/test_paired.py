"""Tests of the paired comparison: published figures, closed forms, and error rates by simulation."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.errors import CheckError
from gates.harness import paired
from gates.harness.paired import Pairs, Trial, non_inferiority, pair
from gates.harness.stats import wilson

RELEASES = 2000  # simulated ones
COUNTS = st.integers(1, 400).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n // 2), st.integers(0, n // 2))
)


def simulated(source: random.Random, n: int, *, worse: float, better: float) -> Pairs:
    """A release of n items, each lost or gained with these chances."""
    draws = [source.random() for _ in range(n)]
    lost = sum(draw < worse for draw in draws)
    gained = sum(worse <= draw < worse + better for draw in draws)
    return Pairs(n, lost, gained, 0)


def test_an_ungraded_item_on_either_side_drops_its_pair() -> None:
    baseline = {"1": True, "2": None, "3": False}
    candidate = {"1": True, "2": True, "3": False}

    assert Pairs(n=2, worse=0, better=0, dropped=1) == pair(baseline, candidate)


def test_an_item_that_one_run_did_not_ask_drops_its_pair() -> None:
    assert Pairs(1, 1, 0, 2, ("1",)) == pair({"1": True, "2": True}, {"1": False, "3": True})


def test_changed_items_are_named() -> None:
    found = pair({"a": True, "b": False, "c": True}, {"a": False, "b": True, "c": True})

    assert (("a",), ("b",)) == (found.worse_items, found.better_items)
    assert 0 == found.drop


def test_runs_of_different_versions_are_not_compared() -> None:
    with pytest.raises(CheckError, match=r"version is '2\.8\.0' in the baseline and '3\.0\.0'"):
        paired.comparable({"tool_eval_bench_version": "2.8.0"}, {"tool_eval_bench_version": "3.0.0"})


def test_a_version_that_one_run_does_not_state_is_a_difference() -> None:
    with pytest.raises(CheckError, match="prompt is '1' in the baseline and 'None' in the candidate"):
        paired.comparable({"grader": "1", "prompt": "1"}, {"grader": "1"})


def test_runs_of_the_same_versions_are_compared() -> None:
    paired.comparable({"grader": "1", "data": "aa"}, {"data": "aa", "grader": "1"})


@pytest.mark.parametrize("n", [1, 15, 164, 1319])
def test_without_a_discordant_pair_the_limit_is_that_of_the_score_test(n: int) -> None:
    square = NormalDist().inv_cdf(0.95) ** 2

    assert square / (n + square) == pytest.approx(paired.drop_limit(Pairs(n, 0, 0, 0)))


def test_the_limit_solves_the_score_equation() -> None:
    """Tango 1998, example of 44 pairs, 1 and 0 discordant: two-sided 95 % interval up to 0.118."""
    assert 0.1181 == pytest.approx(paired.drop_limit(Pairs(44, 1, 0, 0), alpha=0.025), abs=5e-4)


@pytest.mark.parametrize(
    ("n", "changed", "percent"),
    [
        pytest.param(1319, 15, 0.7, id="gsm8k"),
        pytest.param(164, 5, 3.2, id="humaneval"),
        pytest.param(500, 10, 1.5, id="mbpp"),
        pytest.param(541, 15, 1.7, id="ifeval"),
        pytest.param(14042, 200, 0.23, id="mmlu"),
    ],
)
def test_as_many_gains_as_losses_leave_the_normal_limit(n: int, changed: int, percent: float) -> None:
    limit = 100 * paired.drop_limit(Pairs(n, changed, changed, 0))

    assert percent == pytest.approx(limit, rel=0.12)  # the score test is a little wider for small counts


@settings(deadline=None)
@given(COUNTS)
def test_the_limit_lies_above_the_drop_and_within_reach(counts: tuple[int, int, int]) -> None:
    pairs = Pairs(*counts, 0)
    limit = paired.drop_limit(pairs)

    assert pairs.drop <= limit <= 1
    assert limit <= paired.drop_limit(pairs, alpha=0.01)


def test_a_tiny_set_never_passes_for_want_of_evidence() -> None:
    assert "unknown" == non_inferiority(Pairs(15, 0, 0, 0), margin=0.05).decision
    assert "unknown" == non_inferiority(Pairs(0, 0, 0, 0), margin=0.05).decision


def test_a_significant_drop_within_the_margin_passes_and_is_named() -> None:
    found = non_inferiority(Pairs(5000, 20, 5, 0), margin=0.01)

    assert ("pass", True) == (found.decision, found.significant)


def test_a_significant_drop_that_may_exceed_the_margin_fails() -> None:
    assert "fail" == non_inferiority(Pairs(500, 20, 5, 0), margin=0.02).decision


def test_a_margin_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="compare the replies"):
        non_inferiority(Pairs(10, 0, 0, 0), margin=0.0)


def test_clusters_of_one_item_have_the_plain_error() -> None:
    drops = [1.0] * 10 + [-1.0] * 4 + [0.0] * 86
    error = math.sqrt(14 - 6 * 6 / 100) / 100 * math.sqrt(100 / 99)

    assert 0.06 + NormalDist().inv_cdf(0.95) * error == pytest.approx(
        paired.clustered(drops, range(100)).limit()
    )


def test_items_that_fall_together_widen_the_limit_and_raise_p() -> None:
    drops = [1.0] * 10 + [0.0] * 90
    together = paired.clustered(drops, [place // 10 for place in range(100)])
    apart = paired.clustered(drops, range(100))

    assert together.limit() > apart.limit()
    assert together.p > apart.p
    assert "fail" == non_inferiority(Pairs(100, 10, 0, 0), margin=0.1, shared=apart).decision
    assert "unknown" == non_inferiority(Pairs(100, 10, 0, 0), margin=0.1, shared=together).decision


def test_one_context_for_all_items_proves_nothing() -> None:
    alone = paired.clustered([1.0] * 50 + [0.0] * 50, ["one"] * 100)

    assert math.inf == alone.limit()
    assert "unknown" == non_inferiority(Pairs(100, 50, 0, 0), margin=0.9, shared=alone).decision


def test_an_early_look_asks_for_more_than_the_last() -> None:
    pairs = Pairs(500, 14, 4, 0)

    assert "fail" == paired.judge_trials({"one": Trial(pairs, 0.02)})["one"].decision
    assert "unknown" == paired.judge_trials({"one": Trial(pairs, 0.02, level=0.005)})["one"].decision


def test_holm_asks_more_of_each_name_when_there_are_several() -> None:
    assert frozenset({"a", "b"}) == paired.holm({"a": 0.01, "b": 0.02, "c": 0.2})
    assert frozenset() == paired.holm({"a": 0.03, "b": 0.03})
    assert frozenset({"a"}) == paired.holm({"a": 0.05})


def test_holm_turns_a_failure_that_chance_explains_into_unknown() -> None:
    borderline = Trial(Pairs(500, 14, 5, 0), 0.005)  # p 0.032 alone
    quiet = Trial(Pairs(500, 0, 0, 0), 0.02)

    assert "fail" == paired.judge_trials({"one": borderline})["one"].decision
    judged = paired.judge_trials({"one": borderline, "two": quiet, "three": quiet})
    assert ("unknown", "pass") == (judged["one"].decision, judged["two"].decision)


def test_a_build_at_the_margin_passes_as_seldom_as_alpha_says() -> None:
    source = random.Random(7)
    passed = sum(
        non_inferiority(simulated(source, 541, worse=0.05, better=0.03), margin=0.02).decision == "pass"
        for _ in range(RELEASES // 4)
    )
    low, _ = wilson(passed, RELEASES // 4, confidence=0.999)

    assert low <= 0.05


def test_an_unchanged_build_fails_as_seldom_as_alpha_says() -> None:
    source = random.Random(8)
    failed = sum(
        non_inferiority(simulated(source, 164, worse=0.03, better=0.03), margin=0.04).decision == "fail"
        for _ in range(RELEASES)
    )
    low, _ = wilson(failed, RELEASES, confidence=0.999)

    assert low <= 0.05
