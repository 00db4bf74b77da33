"""What is said beside claims about the traffic, so that a person knows why nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from gates import profile
from gates.harness.history import ITEM, Event
from gates.harness.verdict import Measure
from gates.profile import Settings, Value
from gates.quality import traffic
from gates.quality.items import as_json
from gates.tests.quality.records import record

SETTINGS = profile.load("ci").table("quality")
ASKED = {
    "set": "mini_arithmetic",
    "arm": "thinking",
    "item": "mini_arithmetic/0",
    "server": "candidate",
    "max_tokens": 224,
}
REPLY = {"text": "#### 12", "prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39}


def measures(*, settings: Settings = SETTINGS, **reply: Any) -> dict[str, Measure]:
    """The claims about one answered item of the thinking arm."""
    events = [
        Event(0, 0.0, "invoke", 0, "item", ASKED),
        Event(0, 1.0, "ok", 0, "item", {**REPLY, **reply}),
    ]
    return {measure.id: measure for measure in traffic.judge(events, settings).measures}


def test_members_that_the_server_refuses_are_named_beside_the_arm() -> None:
    found = measures(left_out=["return_token_ids", "thinking"])

    assert (
        "1 of 1: neither reasoning nor tokens for it;"
        " asked without return_token_ids, thinking: the server refuses such members"
    ) == found["quality.thinking_in_force_ratio"].note
    assert "no item of this arm was answered" == found["quality.fast_in_force_ratio"].note


def test_a_record_without_a_plan_has_no_parts_either() -> None:
    (note,) = [m.note for m in traffic.judge([], SETTINGS).measures if m.id == "quality.missing_count"]

    assert "another run" not in note


def test_of_many_parts_that_are_elsewhere_some_are_named() -> None:
    plan = {"items": {"mini_arithmetic": {"fast": 2}}, "part": [3, 2000]}
    events = [Event(-1, 0.0, "info", -1, traffic.SETS_PLANNED, plan)]
    found = {measure.id: measure for measure in traffic.judge(events, SETTINGS).measures}

    note = found["quality.missing_count"].note
    assert "part 1, 2, 4, 5, 6, 7, 8, 9 and 1991 more of the items is in another run" in note


@pytest.mark.parametrize(
    ("lengths", "why"),
    [
        pytest.param([11, 19, 1, 17, 18, 33], "no reply has counts", id="counts"),
        pytest.param([0] * 6, "the profile does not say how long replies usually are", id="lengths"),
    ],
)
def test_what_is_missing_for_a_claim_about_lengths_is_named(lengths: list[int], why: str) -> None:
    arms = {f"{arm}_mean_tokens": lengths for arm in ("fast", "thinking")}
    settings = Settings("quality", {**SETTINGS.values, **arms})

    assert measures(settings=settings)["quality.length_ratio"].note.startswith(why)


@pytest.mark.parametrize(
    ("tokens", "value"),
    [
        pytest.param({"fast": 20, "thinking": 24}, 1.2, id="both_arms_counted"),
        pytest.param({"fast": 20, "thinking": None}, None, id="a_silent_arm"),
        pytest.param({"fast": 80, "thinking": None}, 4.0, id="a_silent_arm_beside_one_that_fails"),
    ],
)
def test_no_part_without_counts_hides_behind_another(
    tokens: dict[str, int | None], value: float | None
) -> None:
    one: dict[str, Value] = {"sets": ["gsm8k"], "fast_items": [1], "thinking_items": [1]}
    one |= {f"{arm}_{key}": [0.1] for arm in tokens for key in ("min_scores", "margins")}
    one |= {f"{arm}_mean_tokens": [20] for arm in tokens}
    records = [as_json(record(0, arm=arm, completion_tokens=count)) for arm, count in tokens.items()]
    events = [Event(-1, 0.0, "info", -1, ITEM, fields) for fields in records]

    judged = traffic.judge(events, Settings("quality", {**SETTINGS.values, **one}))
    found = next(measure for measure in judged.measures if measure.id == "quality.length_ratio")

    assert value == found.value
    assert (None in tokens.values()) == ("gsm8k thinking: no reply has counts" in found.note)


def test_every_claim_that_nobody_can_tell_says_why() -> None:
    silent = [name for name, measure in measures().items() if measure.value is None and not measure.note]

    assert [] == silent


def test_a_reply_without_the_program_that_was_asked_for_says_so_beside_it() -> None:
    why = "no program that defines double"
    fields = as_json(record(0, False, state="no_code", note=why, text="def twice(n): ..."))
    judged = traffic.judge([Event(-1, 0.0, "info", -1, ITEM, fields)], SETTINGS)
    (found,) = [one for one in judged.findings if one.measure == "quality.unparsed_ratio"]

    assert f"no_code ({why}): 'def twice(n): ...'" == found.found
