"""Tests of the guard around a check: what it cannot say is unknown, and half a history passes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates import profile as profiles
from gates import registry
from gates.errors import CheckError, GivenUp, ServerDied, UsageError
from gates.harness import history, room
from gates.harness.client import Client
from gates.harness.history import Event, History
from gates.harness.reply import ClientError, CutShort, DeadlinePassed, Gone, Refused
from gates.harness.rig import DIED, STUCK, Rig
from gates.harness.room import Room
from gates.harness.verdict import Judgement, Measure, Verdict
from gates.profile import Profile
from gates.registry import RUN
from gates.spec import GateSpec
from gates.tests.driving import Counted

FINISHED = Event(-1, 9.0, "info", -1, room.FINISHED, {})
ASKED = Event(0, 1.0, "invoke", 0, "echo", {})
ANSWERED = Event(0, 2.0, "ok", 0, "echo", {})
PASS = Measure("echo.right_ratio", 1.0, 1.0, "higher", 4)
FAIL = Measure("echo.right_ratio", 0.5, 1.0, "higher", 4)


def judged(echo: GateSpec, profile: Profile, events: list[Event], *measures: Measure) -> Measure:
    def check(events: object, settings: object, baseline: object) -> Judgement:
        del events, settings, baseline
        return Judgement(measures)

    unused: Any = None
    (measure,) = room.judge(Room(echo, unused, unused, check), events, profile.table("echo"), None).measures
    return measure


def test_a_finished_history_leaves_the_check_its_word(echo_gate: GateSpec, echo_profile: Profile) -> None:
    assert PASS == judged(echo_gate, echo_profile, [ASKED, ANSWERED, FINISHED], PASS)


def test_a_check_that_cannot_judge_is_unknown_in_its_own_words(
    echo_gate: GateSpec, echo_profile: Profile
) -> None:
    def check(events: object, settings: object, baseline: object) -> Judgement:
        del events, settings, baseline
        raise CheckError("items.jsonl holds no items")

    unused: Any = None
    one = Room(echo_gate, unused, unused, check)
    (measure,) = room.judge(one, [ASKED, ANSWERED, FINISHED], echo_profile.table("echo"), None).measures

    assert (Verdict.UNKNOWN, "not judged: items.jsonl holds no items") == (measure.verdict, measure.note)


@pytest.mark.parametrize(
    ("events", "note"),
    [
        pytest.param([], "the record stops before the gate had finished", id="nothing"),
        pytest.param([ASKED, ANSWERED], "the record stops before the gate had finished", id="killed"),
        pytest.param(
            [ASKED, ANSWERED, Event(-1, 3, "info", -1, DIED, {"message": "gone"})],
            "the server died before the gate had finished (gone)",
            id="died",
        ),
        pytest.param(
            [ASKED, ANSWERED, Event(-1, 3, "info", -1, room.BROKE, {"message": "bug"})],
            "the harness broke while it drove the gate (bug)",
            id="broke",
        ),
        pytest.param([ASKED, FINISHED], "no 'echo' request was ever answered", id="never_answered"),
    ],
)
def test_half_a_history_turns_a_pass_into_unknown_and_says_why(
    echo_gate: GateSpec, echo_profile: Profile, events: list[Event], note: str
) -> None:
    found = judged(echo_gate, echo_profile, events, PASS)

    assert Verdict.UNKNOWN == found.verdict
    assert f"{note}; 1 so far, n = 4" == found.note


def test_half_a_history_keeps_a_failure(echo_gate: GateSpec, echo_profile: Profile) -> None:
    assert Verdict.FAIL == judged(echo_gate, echo_profile, [ASKED, ANSWERED], FAIL).verdict


def test_a_measure_that_the_check_forgot_is_unknown(echo_gate: GateSpec, echo_profile: Profile) -> None:
    found = judged(echo_gate, echo_profile, [ASKED, ANSWERED, FINISHED])

    assert (Verdict.UNKNOWN, "the check did not return it") == (found.verdict, found.note)


def test_a_measure_that_nobody_registered_makes_the_gate_unknown(
    echo_gate: GateSpec, echo_profile: Profile
) -> None:
    odd = Measure("echo.odd_ratio", 1.0, 1.0, "higher", 1)

    found = judged(echo_gate, echo_profile, [ASKED, ANSWERED, FINISHED], PASS, odd)
    assert "the registry does not know: echo.odd_ratio" in found.note


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_number_that_no_record_can_hold_is_not_measured(
    echo_gate: GateSpec, echo_profile: Profile, odd: float
) -> None:
    wild = replace(PASS, value=odd, interval=(0.0, odd), note="so many")

    found = judged(echo_gate, echo_profile, [ASKED, ANSWERED, FINISHED], wild)
    assert (None, None, f"the check gave {odd}; so many") == (found.value, found.interval, found.note)


def test_what_the_harness_measures_itself_has_no_room() -> None:
    with pytest.raises(UsageError, match="no room"):
        room.load(RUN)


def rig_with(tmp_path: Path, error: ClientError, alive: Callable[[], bool]) -> Rig:
    client = Client("http://127.0.0.1:1")

    def chat(*_: object, **__: object) -> None:
        raise error

    client.chat = chat  # type: ignore[assignment,method-assign]  # only what becomes of the request is tested
    record = History(tmp_path / "h.jsonl")
    return Rig(client, record, Counted(), alive, None, 4096, pause=lambda _: None, stop_at_s=math.inf)


def ask(rig: Rig) -> None:
    assert rig.chat("echo", [], fields={}, max_tokens=1) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(Refused(503, "full", "overloaded"), "fail", id="refused"),
        pytest.param(CutShort("cut", "half"), "fail", id="cut_by_a_living_server"),
        pytest.param(Gone("reset"), "info", id="connection_lost"),
        pytest.param(DeadlinePassed("late"), "info", id="deadline"),
    ],
)
def test_a_living_server_answers_for_what_is_definite(tmp_path: Path, error: ClientError, kind: str) -> None:
    ask(rig_with(tmp_path, error, lambda: True))

    end = history.read(tmp_path / "h.jsonl")[-1]
    assert (kind, type(error).__name__, True) == (end.kind, end.get("error"), end.get("alive"))


def test_a_stream_cut_by_a_dying_server_is_not_held_against_it(tmp_path: Path) -> None:
    with pytest.raises(ServerDied, match="died during 'echo'"):
        ask(rig_with(tmp_path, CutShort("cut", "half"), lambda: False))

    _, end, note = history.read(tmp_path / "h.jsonl")
    assert ("info", DIED) == (end.kind, note.what)


def test_three_lost_requests_in_a_row_end_the_gate(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, DeadlinePassed("late"), lambda: True)
    ask(rig)
    ask(rig)

    with pytest.raises(GivenUp, match="3 requests in a row"):
        ask(rig)
    assert STUCK == history.read(tmp_path / "h.jsonl")[-1].what


def test_a_gate_far_over_its_budget_is_given_up_before_the_next_request(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, DeadlinePassed("late"), lambda: True)
    rig.stop_at_s = 0.0

    with pytest.raises(GivenUp, match="many times its budget"):
        ask(rig)
    (note,) = history.read(tmp_path / "h.jsonl")
    assert STUCK == note.what


@pytest.mark.parametrize("spec", registry.GATES, ids=lambda spec: spec.name)
def test_a_gate_that_was_never_begun_breaks_no_claim(spec: GateSpec) -> None:
    settings = profiles.load("ci").table(spec.name)
    said = room.judge(room.load(spec), [], settings, None)

    assert Verdict.FAIL not in {measure.verdict for measure in said.measures}
