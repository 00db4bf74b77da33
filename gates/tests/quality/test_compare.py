"""Both sides of a set: who is paired, what keeps them from being compared, where replies part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.harness.paired import Pairs
from gates.quality import compare
from gates.quality.compare import Comparison, Divergence, Noise, Plan
from gates.quality.items import ItemRecord
from gates.tests.quality.records import BOUNDS, answers, record, side

PLAN = Plan("gsm8k", "fast", 4, 0.1, BOUNDS)


def compared(records: list[ItemRecord], kept: list[ItemRecord], plan: Plan = PLAN) -> Comparison:
    (found,) = compare.comparisons([plan], records, kept)
    return found


def test_items_are_paired_with_the_kept_baseline_and_lost_ones_drop_out() -> None:
    found = compared(side([False, True, None, True]), side([True, True, True, None]))

    assert Pairs(2, 1, 0, 2, ("gsm8k/0",)) == found.pairs


def test_a_baseline_asked_on_the_same_day_goes_before_the_kept_one() -> None:
    beside = side(answers(4), server="baseline")
    found = compared([*side(answers(4)), *beside], side(answers(4, wrong=[0, 1])))

    assert found.same_day
    assert (4, 0) == (found.pairs.n, found.pairs.discordant)


def test_another_arm_or_set_is_another_comparison() -> None:
    records = [*side(answers(4)), *side(answers(4, wrong=[1]), arm="thinking")]
    plans = [PLAN, replace(PLAN, arm="thinking"), replace(PLAN, set="mmlu")]
    fast, thinking, other = compare.comparisons(plans, records, records)

    assert ["gsm8k fast", "gsm8k thinking", "mmlu fast"] == [c.plan.name for c in (fast, thinking, other)]
    assert (4, 4, 0) == (len(fast.now), len(thinking.now), len(other.now))
    assert "no item was asked" == other.spoiled


def test_the_same_build_asked_twice_is_the_baseline_and_itself_or_repeats_of_the_candidate() -> None:
    beside = side(answers(4), server="baseline")
    again = side(answers(4, wrong=[2]), server="baseline_again")
    repeats = side(answers(2, wrong=[1]), repeat=1)

    three_arms = compared([*side(answers(4)), *beside, *again, *repeats], [])
    one_arm = compared([*side(answers(4)), *repeats], [])
    assert Noise(4, 1, 0, 1) == compare.noise(three_arms.twice)
    assert Noise(2, 1, 0, 1) == compare.noise(one_arm.twice)
    assert Noise(0, 0, 0, 0) == compare.noise(compared(side(answers(4)), []).twice)


def test_noise_beyond_chance_has_a_small_p_in_either_direction() -> None:
    assert 2 / 1024 == Noise(100, 10, 0, 10).p == Noise(100, 0, 10, 10).p
    assert 1.0 == Noise(100, 5, 5, 10).p
    assert (0.1, 0.0) == (Noise(100, 5, 5, 10).rate, Noise(0, 0, 0, 0).rate)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"grader_version": "gsm8k grader 2"}, "grader is 'gsm8k grader 1', this one is 'gsm8k grader 2'"),
        ({"prompt_sha256": "q" * 64}, "4 of 4 items are asked in other words"),
        ({"item": "gsm8k/99"}, "the baseline has none of these items"),
    ],
)
def test_another_version_of_grader_or_prompt_is_not_compared(changes: dict[str, Any], reason: str) -> None:
    found = compared([replace(r, **changes) for r in side(answers(4))], side(answers(4)))

    assert reason in found.incomparable


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    assert "there is no baseline" in compared(side(answers(4)), []).incomparable


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (side(answers(100, lost=[3])), "1.0% of the items have no usable reply"),
        ([*side(answers(50))[:49], record(49, outcome="truncated")], "2.0% of the replies were cut"),
    ],
)
def test_lost_items_and_cut_replies_spoil_a_side(records: list[ItemRecord], reason: str) -> None:
    assert reason in compared(records, side(answers(100))).spoiled


def test_a_baseline_of_the_same_day_can_be_spoiled_too() -> None:
    beside = side(answers(4, lost=[0]), server="baseline")

    assert "of the baseline: 25.0%" in compared([*side(answers(4)), *beside], []).spoiled


def test_items_of_one_context_count_together() -> None:
    rights = answers(40, wrong=range(10))
    now = [replace(one, cluster=f"subject {place // 10}") for place, one in enumerate(side(rights))]
    found = compared(now, side(answers(40)), replace(PLAN, items=40)).shared

    assert found is not None
    assert 0.25 == found.mean
    assert found.p > 0.1
    assert compared(side(rights), side(answers(40))).shared is None


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({"token_ids": (1, 2, 3)}, {"token_ids": (1, 5, 3)}, Divergence(1, "token", "2", "5")),
        ({"token_ids": (1, 2)}, {"token_ids": (1, 2, 3)}, Divergence(2, "token", "end", "3")),
        ({"text": "abc"}, {"text": "abd"}, Divergence(2, "character", "c", "d")),
        ({"text": "abc"}, {"text": "ab"}, Divergence(2, "character", "c", "")),
        (
            {"reasoning_length": 5},
            {"reasoning_length": 9},
            Divergence(5, "reasoning", "5 characters", "9 characters"),
        ),
        ({"text": "abc", "token_ids": (1,)}, {"text": "abc"}, None),
        ({}, {}, None),
    ],
)
def test_the_first_difference_is_found(
    before: dict[str, Any], now: dict[str, Any], found: Divergence | None
) -> None:
    assert found == compare.divergence(record(0, **before), record(0, **now))


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_up_to_the_first_difference_replies_are_equal(before: list[int], now: list[int]) -> None:
    texts = ["".join(map(str, numbers)) for numbers in (before, now)]
    place = compare.divergence(record(0, text=texts[0]), record(0, text=texts[1]))

    assert (place is None) == (before == now)
    if place is not None:
        assert before[: place.place] == now[: place.place]
        assert before[place.place : place.place + 1] != now[place.place : place.place + 1]


def test_a_difference_is_said_in_words() -> None:
    assert "token 7: '42' became '41'" == str(Divergence(7, "token", "42", "41"))
