"""Tests of measures, verdicts and the verdict file."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from gates.harness.verdict import (
    Finding,
    GateVerdict,
    Judgement,
    Measure,
    RunVerdict,
    Verdict,
    as_record,
    measured,
    merge,
    rerun,
    summary_line,
    unmeasured,
    worst,
)
from gates.profile import Profile, Settings

RUN = {
    "seed": 7,
    "settings": {"run": {"selection": True, "model": "given"}},
    "server": {"launched": True},
    "own_server": True,
}


def measure(value: float | None, *, better: Any = "higher", limit: float = 1.0) -> Measure:
    return Measure("echo.right_ratio", value, limit, better, n=4)


@pytest.mark.parametrize(
    ("value", "better", "expected"),
    [
        pytest.param(1.0, "higher", "pass", id="just_at_a_lower_limit"),
        pytest.param(0.999, "higher", "fail", id="just_below"),
        pytest.param(1.0, "lower", "pass", id="just_at_an_upper_limit"),
        pytest.param(1.001, "lower", "fail", id="just_above"),
        pytest.param(None, "higher", "unknown", id="not_measured"),
        pytest.param(math.nan, "lower", "unknown", id="not_a_number"),
        pytest.param(math.inf, "higher", "unknown", id="endless"),
    ],
)
def test_a_measure_is_held_against_its_limit(value: float | None, better: str, expected: str) -> None:
    assert expected == measure(value, better=better).verdict


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        pytest.param("followup", [0.99, 0.97], 0.97, id="all_told"),
        pytest.param("cold", [0.0, 0.02], 0.02, id="all_told_lower_is_better"),
        pytest.param("followup", [0.99, None], None, id="one_does_not_say"),
        pytest.param("followup", [0.5, None], 0.5, id="one_does_not_say_and_another_is_too_bad"),
        pytest.param("cold", [None, 0.5], 0.5, id="the_same_where_lower_is_better"),
        pytest.param("cold", [None, None], None, id="nobody_says"),
        pytest.param("cold", [], None, id="nobody_was_asked"),
    ],
)
def test_the_worst_of_several_is_not_known_while_one_does_not_say(
    name: str, values: list[float | None], expected: float | None
) -> None:
    settings = Settings("needle", {"min_followup_cached_ratio": 0.95, "max_cold_cached_ratio": 0.05})

    assert expected == worst(settings, f"needle.{name}_cached_ratio", values)


def test_verdicts_merge_fail_over_unknown_over_pass_in_any_order() -> None:
    rank = [Verdict.PASS, Verdict.UNKNOWN, Verdict.FAIL]
    for three in itertools.product(Verdict, repeat=3):
        assert max(three, key=rank.index) == merge(three)


def test_nothing_measured_is_unknown() -> None:
    assert Verdict.UNKNOWN == merge([])
    assert Verdict.UNKNOWN == RunVerdict("ci", {}, ()).verdict


@pytest.mark.usefixtures("echo_gate")
def test_limit_and_direction_come_from_profile_and_registry(echo_profile: Profile) -> None:
    found = measured(echo_profile.table("echo"), "echo.right_ratio", 0.5, n=2)

    assert Measure("echo.right_ratio", 0.5, 1.0, "higher", 2) == found


def test_an_unmeasured_claim_carries_its_reason(echo_profile: Profile) -> None:
    (found,) = unmeasured(echo_profile.table("echo"), ["echo.right_ratio"], "no server")

    assert (Verdict.UNKNOWN, "no server") == (found.verdict, found.note)


@pytest.mark.usefixtures("echo_gate")
def test_a_broken_notice_does_not_move_the_verdict() -> None:
    budget = Measure("run.budget_ratio", 3.0, 1.0, "lower", 1)
    left = Measure("run.leftover_count", 0, 0, "lower", 1)

    assert Verdict.PASS == GateVerdict("run", 1.0, None, Judgement((left, budget))).verdict


@pytest.mark.usefixtures("echo_gate")
def test_a_gate_of_notices_alone_leaves_the_run_as_it_is() -> None:
    notice = GateVerdict("run", 1.0, None, Judgement((Measure("run.budget_ratio", 3.0, 1.0, "lower", 1),)))
    echo = GateVerdict("echo", 1.0, "echo/history.jsonl", Judgement((measure(1.0),)))

    assert Verdict.PASS == RunVerdict("ci", {}, (echo, notice)).verdict


@pytest.mark.usefixtures("echo_gate")
def test_a_run_that_did_not_end_is_never_a_pass() -> None:
    echo = GateVerdict("echo", 1.0, None, Judgement((measure(1.0),)))

    assert Verdict.UNKNOWN == RunVerdict("ci", {}, (echo,), cause=Verdict.UNKNOWN).verdict


@pytest.mark.usefixtures("echo_gate")
def test_the_verdict_file_has_schema_1_and_every_measure() -> None:
    judgement = Judgement((measure(0.5),), findings=(Finding("echo.right_ratio", "cell 1", "a", "b"),))
    record = as_record(RunVerdict("ci", RUN, (GateVerdict("echo", 2.0, "h", judgement),)))

    assert (1, "fail", RUN) == (record["schema"], record["verdict"], record["run"])
    assert ("echo.right_ratio", 0.5, 1.0, "ratio") == tuple(
        record["gates"][0]["measures"][0][name] for name in ("id", "value", "limit", "unit")
    )
    assert "cell 1" == record["gates"][0]["findings"][0]["where"]


@pytest.mark.usefixtures("echo_gate")
def test_the_last_line_begins_with_the_word_and_gives_the_first_reason() -> None:
    gate = GateVerdict("echo", 2.0, "h", Judgement((measure(0.5),)))
    record = as_record(RunVerdict("ci", RUN, (gate,), reasons=("too few words came back",)))

    assert "FAIL: profile ci, 0 of 1 claims hold - too few words came back" == summary_line(record)


def test_the_command_that_asks_again_names_the_file_of_a_profile_that_does_not_ship() -> None:
    gate = GateVerdict("echo", 2.0, "h", Judgement((measure(0.5),)))

    command = rerun(RunVerdict("mine", RUN, (gate,)), gate)

    assert command is not None
    assert command.startswith("python -m gates run --profile mine.toml --seed 7")


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        pytest.param({}, "--seed 7 --only echo --model PATH", id="given_model"),
        pytest.param(
            {"own_server": False}, "--seed 7 --only echo --model PATH --server COMMAND", id="server"
        ),
        pytest.param({"server": {"launched": False}}, "--seed 7 --only echo --base-url URL", id="address"),
        pytest.param(
            {"settings": {"run": {"selection": False, "model": "embedded"}}},
            "--seed 7",
            id="nothing_left_out",
        ),
    ],
)
def test_the_command_that_asks_again_names_all_that_it_needs(changes: dict[str, Any], command: str) -> None:
    gate = GateVerdict("echo", 2.0, "h", Judgement((measure(0.5),)))

    assert f"python -m gates run --profile ci {command}" == rerun(
        RunVerdict("ci", RUN | changes, (gate,)), gate
    )
