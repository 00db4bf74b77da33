"""The verdict on each set: pass, fail or unknown, for the right reason and at the right look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gates.harness import power
from gates.quality import compare, decide
from gates.quality.compare import Plan
from gates.quality.decide import SetVerdict
from gates.quality.items import ItemRecord
from gates.tests.quality.records import BOUNDS, answers, record, side

N = 400
PLAN = Plan("gsm8k", "fast", N, 0.02, BOUNDS)
RIGHT = side(answers(N))


def judged(now: list[ItemRecord], kept: list[ItemRecord], plan: Plan = PLAN, *, looks: int = 1) -> SetVerdict:
    (found,) = decide.judge(compare.comparisons([plan], now, kept), looks=looks)
    return found


def lost(count: int, n: int = N) -> list[ItemRecord]:
    return side(answers(n, wrong=range(count)))


def test_an_unchanged_build_passes_and_says_what_would_have_been_seen() -> None:
    found = judged(RIGHT, RIGHT)

    assert "pass" == found.decision
    assert power.detectable_drop(N, noise=0.0) == found.detectable
    assert "would have seen a drop of 1.7%" in found.reason


def test_a_build_that_lost_more_than_its_margin_fails() -> None:
    found = judged(lost(12), RIGHT)

    assert "fail" == found.decision
    assert found.reason.startswith("dropped by 3.00% (p 0.00024), margin 2.00%")


def test_a_drop_within_the_margin_passes_and_is_named() -> None:
    found = judged(lost(12), RIGHT, replace(PLAN, margin=0.06))

    assert "pass" == found.decision
    assert found.reason.startswith("a drop of 3.00% is there")


def test_too_few_items_are_unknown_with_the_drop_that_they_cannot_exclude() -> None:
    found = judged(side(answers(20)), side(answers(20)), replace(PLAN, items=20))

    assert "unknown" == found.decision
    assert "not enough evidence: may have lost 11.92%, margin 2.00%" in found.reason


def test_a_failure_that_chance_explains_over_many_sets_is_unknown() -> None:
    sets = [f"set{number}" for number in range(6)]
    plans = [Plan(name, "fast", N, 0.01, BOUNDS) for name in sets]
    records = [
        r for name in sets for r in side(answers(N, wrong=range(5 if name == "set0" else 0)), set=name)
    ]
    kept = [r for name in sets for r in side(answers(N), set=name)]
    first, *others = decide.judge(compare.comparisons(plans, records, kept), looks=1)

    assert "fail" == judged(lost(5), RIGHT, replace(PLAN, margin=0.01)).decision
    assert ("unknown", {"pass"}) == (first.decision, {other.decision for other in others})
    assert "chance explains it over so many sets" in first.reason


def test_a_build_that_differs_from_itself_beyond_chance_judges_nothing() -> None:
    beside = side(answers(N), server="baseline")
    again = side(answers(N, wrong=range(9)), server="baseline_again")
    found = judged([*RIGHT, *beside, *again], [])

    assert "unknown" == found.decision
    assert "the same build asked twice differs beyond chance: of 400 items 9 got worse" in found.reason


def test_noise_of_the_same_build_makes_the_detectable_drop_larger() -> None:
    beside = side(answers(N), server="baseline")
    flips = side([place % 40 != 7 for place in range(N)], server="baseline")
    again = side([place % 40 != 3 for place in range(N)], server="baseline_again")
    quiet = judged([*RIGHT, *beside], [])
    noisy = judged([*side([place % 40 != 7 for place in range(N)]), *flips, *again], [])

    assert (0.0, 0.05) == (quiet.noise.rate, noisy.noise.rate)
    assert quiet.detectable is not None
    assert noisy.detectable is not None
    assert quiet.detectable < noisy.detectable
    assert power.detectable_drop(N, noise=0.05) == noisy.detectable


def test_more_changes_than_noise_explains_are_named_also_when_they_cancel_out() -> None:
    kept = side([place % 20 != 3 for place in range(N)])
    now = side([place % 20 != 4 for place in range(N)])
    repeats = [replace(one, repeat=1) for one in now[:100]]
    found = judged([*now, *repeats], kept, replace(PLAN, margin=0.05))

    assert (20, 20, "pass") == (found.pairs.worse, found.pairs.better, found.decision)
    assert "10.0% of the items changed side, 0.0% when the same build was asked twice" in found.reason
    assert "changed side" not in judged([*RIGHT, *side(answers(100), repeat=1)], RIGHT).reason


def test_over_many_sets_chance_explains_more_changes() -> None:
    """8 of 400 against 0 of 200: p 0.04 alone, which says nothing when twelve sets are looked at."""
    sets = [f"set{number}" for number in range(12)]
    now = [r for name in sets for r in side(answers(N, wrong=range(8)), set=name)]
    repeats = [replace(r, repeat=1) for r in now if int(r.item.partition("/")[2]) >= N // 2]
    kept = [r for name in sets for r in side(answers(N), set=name)]
    plans = [Plan(name, "fast", N, 0.5, BOUNDS) for name in sets]
    many = decide.judge(compare.comparisons(plans, [*now, *repeats], kept), looks=1)
    (one,) = decide.judge(compare.comparisons(plans[:1], [*now, *repeats], kept), looks=1)

    assert "changed side" in one.reason
    assert not any("changed side" in verdict.reason for verdict in many)


@pytest.mark.parametrize(
    ("asked", "lost_items", "decision"),
    [
        pytest.param(N // 2, 30, "fail", id="broken_at_the_second_look"),
        pytest.param(N // 2, 6, "unknown", id="not_yet_at_the_second_look"),
        pytest.param(N // 2 + 1, 30, "unknown", id="between_two_looks"),
        pytest.param(0, 0, "unknown", id="nothing_asked"),
    ],
)
def test_a_set_may_be_judged_at_a_look_and_not_between(asked: int, lost_items: int, decision: str) -> None:
    found = judged(lost(lost_items, asked), RIGHT, looks=4)

    assert decision == found.decision


def test_a_set_is_settled_when_its_verdict_stands_whatever_the_others_say() -> None:
    def settled(now: list[ItemRecord], *, margin: float = 0.02, family: int = 1) -> bool:
        (one,) = compare.comparisons([replace(PLAN, margin=margin)], now, RIGHT)
        return decide.settled(one, looks=4, family=family)

    assert settled(lost(12, N // 2))
    assert settled(lost(9, N // 2))
    assert not settled(lost(9, N // 2), family=10)
    assert not settled(lost(12, N // 2 + 1))
    assert not settled(lost(0, N // 2))
    assert settled(lost(0, N // 2), margin=0.2)
    assert not settled(lost(12, N // 2), margin=0.0)
    assert not settled([])


def test_what_is_settled_is_so_judged_among_other_sets() -> None:
    """A failure that holds against Holm's strictest share is a failure beside any other sets."""
    plans = [Plan(name, "fast", N, 0.02, BOUNDS) for name in ("gsm8k", "a", "b", "c")]
    now = [*lost(13, N // 2), *(r for name in "abc" for r in side(answers(N), set=name))]
    kept = [*RIGHT, *(r for name in "abc" for r in side(answers(N), set=name))]
    comparisons = compare.comparisons(plans, now, kept)

    assert decide.settled(comparisons[0], looks=4, family=4)
    assert "fail" == decide.judge(comparisons, looks=4)[0].decision


BITS = replace(PLAN, margin=0.0)


def test_equal_replies_pass_where_nothing_may_change() -> None:
    assert "pass" == judged(RIGHT, RIGHT, BITS).decision


def test_one_other_reply_fails_where_nothing_may_change_and_the_build_repeats_itself() -> None:
    repeats = side(answers(40), repeat=1)
    now = [*RIGHT[:-1], record(N - 1, text="#### 1."), *repeats]
    found = judged(now, RIGHT, BITS)

    assert "fail" == found.decision
    assert (
        "1 of 400 replies differ from the baseline: gsm8k/399 at character 6: '' became '.'" == found.reason
    )


@pytest.mark.parametrize(
    ("differing", "decision"), [pytest.param(3, "unknown", id="noise"), pytest.param(90, "fail", id="more")]
)
def test_where_the_build_does_not_repeat_itself_only_more_than_that_fails(
    differing: int, decision: str
) -> None:
    changed = [record(place, text="other words") for place in range(differing)]
    now = [*changed, *RIGHT[differing:]]
    repeats = [record(0, text="another", repeat=1), *(replace(r, repeat=1) for r in now[1:100])]
    found = judged([*now, *repeats], RIGHT, BITS)

    assert decision == found.decision


def test_without_anything_asked_twice_a_difference_proves_nothing() -> None:
    found = judged([*RIGHT[:-1], record(N - 1, text="other")], RIGHT, BITS)

    assert "unknown" == found.decision
    assert "nothing was asked twice" in found.reason


def test_a_baseline_with_items_missing_cannot_show_that_nothing_changed() -> None:
    assert "unknown" == judged(RIGHT, RIGHT[:-1], BITS).decision


def test_only_a_missing_or_other_baseline_leaves_nothing_to_compare_with() -> None:
    assert judged(RIGHT, []).incomparable
    assert judged(RIGHT, [replace(r, grader_version="0") for r in RIGHT]).incomparable
    assert not judged(side(answers(N, lost=range(50))), []).incomparable
    assert not judged(lost(5), RIGHT).incomparable


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        pytest.param(side(answers(N, lost=[3])), RIGHT, id="now"),
        pytest.param(RIGHT, side(answers(N, lost=[3])), id="before"),
        pytest.param(side(answers(N, lost=[3])), side(answers(N, lost=[3])), id="both"),
    ],
)
def test_where_nothing_may_change_a_lost_reply_is_neither_a_change_nor_the_same(
    now: list[ItemRecord], kept: list[ItemRecord]
) -> None:
    repeated = [*now, *(replace(one, repeat=1) for one in now[10:60])]
    found = judged(repeated, kept, replace(PLAN, margin=0.0))

    assert "unknown" == found.decision
    assert found.reason.startswith(f"1 of {N} items have no reply on one side")


def test_where_nothing_may_change_a_change_counts_beside_a_lost_reply() -> None:
    now = side(answers(N, lost=[3], wrong=[5]))
    repeated = [*now, *(replace(one, repeat=1) for one in now[10:60])]
    found = judged(repeated, RIGHT, replace(PLAN, margin=0.0))

    assert "fail" == found.decision
    assert found.reason.startswith(f"1 of {N - 1} replies differ from the baseline: gsm8k/5")
