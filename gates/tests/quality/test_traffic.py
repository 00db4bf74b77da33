"""What is said beside claims about the traffic, so that a person knows why nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from gates import profile
from gates.harness.history import Event
from gates.harness.verdict import Measure
from gates.profile import Settings
from gates.quality import traffic

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


def test_every_claim_that_nobody_can_tell_says_why() -> None:
    silent = [name for name, measure in measures().items() if measure.value is None and not measure.note]

    assert [] == silent
