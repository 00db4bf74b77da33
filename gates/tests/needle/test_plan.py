"""The plan: pure, seeded by case ids, cells that share nothing."""

from __future__ import annotations

from itertools import combinations

import pytest

from gates import profile
from gates.errors import UsageError
from gates.harness.stats import failure_bound
from gates.needle.hay import Prose
from gates.needle.plan import NeedlePlan, make_cell, plan
from gates.needle.sizing import cut
from gates.profile import Settings, Value

PROFILES = ("ci", "nightly", "candidate", "release")


def table(**changes: Value) -> Settings:
    """The needle table of `ci` with changes."""
    return Settings("needle", {**profile.load("ci").table("needle").values, **changes})


def of_profile(name: str) -> NeedlePlan:
    """The plan of a shipped profile."""
    return plan(profile.load(name).table("needle"), seed=1)


@pytest.mark.parametrize("name", PROFILES)
def test_the_same_seed_gives_the_same_cells(name: str) -> None:
    settings = profile.load(name).table("needle")

    assert plan(settings, seed=5) == plan(settings, seed=5)
    assert plan(settings, seed=5) != plan(settings, seed=6)


@pytest.mark.parametrize("name", PROFILES)
def test_ids_codes_and_hay_seeds_are_all_different(name: str) -> None:
    cells = of_profile(name).asked_cells

    assert len(cells) == len({cell.id for cell in cells}) == len({cell.hay_seed for cell in cells})
    for cell in cells:
        needles = (*cell.asked, *cell.decoys)
        keys = [*(needle.key for needle in needles), *([cell.absent_key] if cell.absent_key else [])]
        assert len(keys) == len(set(keys))
        assert len(needles) == len({needle.code for needle in needles})
        assert 2 == len(cell.decoys)


def test_ci_asks_ten_depths_at_1k_and_8k_and_three_and_an_absent_one_at_32k() -> None:
    cells = of_profile("ci").asked_cells
    tiers = {tier: [c for c in cells if c.tier_tokens == tier] for tier in (1024, 8192, 32768)}
    depths = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]

    assert depths == sorted(c.depth for c in tiers[1024] if c.ask == "recall")
    assert depths == sorted(c.depth for c in tiers[8192] if c.ask == "recall")
    assert 3 == sum(c.ask == "recall" for c in tiers[32768])
    assert 1 == sum(c.ask == "absent" for c in tiers[32768])
    assert sum(len(found) for found in tiers.values()) == len(cells)


def test_release_asks_70_cells_up_to_130k_and_ten_each_at_248k_and_519k() -> None:
    recall = [cell for cell in of_profile("release").asked_cells if cell.ask == "recall"]

    assert 70 == sum(cell.tier_tokens <= 130_000 for cell in recall)
    assert [10, 10] == [sum(cell.tier_tokens == tier for cell in recall) for tier in (248_000, 519_000)]


@pytest.mark.parametrize(
    ("name", "cells", "allowed"),
    [("ci", 28, 1), ("nightly", 73, 1), ("candidate", 40, 0), ("release", 106, 0)],
)
def test_the_bound_of_a_profile_lets_as_many_cells_fail_as_documented(
    name: str, cells: int, allowed: int
) -> None:
    limit = profile.load(name).table("needle").number("max_failure_bound_ratio")

    assert cells == of_profile(name).cells
    assert failure_bound(allowed, cells) <= limit < failure_bound(allowed + 1, cells)


def test_two_cells_differ_within_their_first_128_words() -> None:
    cells = [cell for cell in of_profile("ci").asked_cells if cell.tier_tokens <= 8192]
    fronts = [
        " ".join(cell.message(cut(Prose().sentences(cell.hay_seed), 400)).split()[:40]) for cell in cells
    ]

    assert all(one != other for one, other in combinations(fronts, 2))


def test_depths_are_not_asked_in_their_order() -> None:
    depths = [c.depth for c in of_profile("ci").asked_cells if c.tier_tokens == 8192 and c.ask == "recall"]

    assert sorted(depths) != depths


def test_first_turns_are_timed_again_in_passes_over_all_cells_of_their_tier() -> None:
    again = [(cell.tier_tokens, cell.ask, cell.id) for cell in of_profile("ci").asked_again]

    assert 20 == len(again)
    assert {(1024, "recall")} == {(tokens, ask) for tokens, ask, _ in again}
    assert again[:10] == again[10:]


def test_a_message_holds_every_needle_and_not_the_absent_key() -> None:
    for ask in ("recall", "order", "absent"):
        cell = make_cell(f"needle/test/1/{ask}", tier_tokens=1000, ask=ask, depth=0.5, seed=1)
        message = cell.message(cut(Prose().sentences("x"), 500))
        text, _, question = message.partition("\n\nQuestion: ")

        assert all(needle.sentence in text for needle in (*cell.asked, *cell.decoys))
        assert all(needle.key in question for needle in cell.asked)
        assert cell.decoys[0].key in cell.turns[-1].question
        if ask == "absent":
            assert cell.absent_key in question
            assert cell.absent_key not in text


def test_every_turn_wants_some_codes_of_its_text_and_none_of_the_others() -> None:
    for cell in of_profile("nightly").asked_cells:
        codes = {needle.code for needle in (*cell.asked, *cell.decoys)}
        for turn in cell.turns:
            assert codes == {*turn.expected, *turn.others}
            assert set() == set(turn.expected) & set(turn.others)


def test_a_recall_cell_asks_for_all_its_codes_in_its_second_turn() -> None:
    turns = make_cell("needle/test/1/1", tier_tokens=1000, ask="recall", depth=0.5, seed=1).turns

    assert ["recall", "order", "followup"] == [turn.what for turn in turns]
    assert [1, 3, 1] == [len(turn.expected) for turn in turns]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"tier_cells": [1]}, "tier_cells has 1 entries", id="lists_of_different_length"),
        pytest.param({"tiers_tokens": [8192, 1024, 32768]}, "shortest first", id="not_upwards"),
        pytest.param({"tiers_tokens": [10, 1024, 32768]}, "from 256 tokens", id="too_short"),
        pytest.param({"tier_cold_asks": [1, 0, 1]}, "at least once", id="never_asked"),
        pytest.param({"depths": []}, "depths is empty", id="no_depths"),
        pytest.param({"hay": "straw"}, "allowed are prose, novel", id="unknown_hay"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_message(changes: dict[str, Value], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(table(**changes), seed=1)
