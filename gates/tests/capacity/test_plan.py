"""The plan of the capacity gate: seeded, and as large as its profile says."""

from __future__ import annotations

import pytest

from gates import profile
from gates.capacity.plan import CODES, CapacityPlan, plan
from gates.errors import UsageError
from gates.profile import Value
from gates.tests.capacity.driving import settings


def planned(name: str, *, seed: int = 7) -> CapacityPlan:
    return plan(profile.load(name).table("capacity"), seed=seed)


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert planned("ci") == planned("ci")
    assert planned("ci").deep != planned("ci", seed=8).deep


def test_release_holds_518k_and_248k_tokens_and_fills_up() -> None:
    release = planned("release")

    assert [518_000, 248_000] == [deep.tokens for deep in release.deep]
    assert sum(filler.tokens for filler in release.fillers) >= 4_000_000


@pytest.mark.parametrize("name", ["ci", "nightly", "candidate", "release"])
def test_every_conversation_fits_the_context_of_its_profile(name: str) -> None:
    assert planned(name).context_tokens <= profile.load(name).table("server").count("context_tokens")


def test_every_text_is_its_own_and_deep_ones_have_a_code_for_each_turn() -> None:
    ci = planned("ci")
    texts = [*ci.deep, *ci.fillers, *ci.storm]

    assert len(texts) == len({one.id for one in texts})
    assert {CODES} == {len(deep.planted) for deep in ci.deep}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"hay": "straw"}, "allowed are prose, novel", id="hay"),
        pytest.param({"deep_tokens": [1000]}, "give 2 lengths", id="one_deep"),
        pytest.param({"filler_tokens": 9000}, "give 1 to most_filled_tokens", id="large_filler"),
    ],
)
def test_what_cannot_be_is_said(change: dict[str, Value], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(settings(change), seed=7)
