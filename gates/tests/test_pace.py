"""How long gates take: from older runs, from budgets, and from the gates of this run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gates.harness import pace
from gates.harness.pace import Pace
from gates.profile import Profile
from gates.tests.judged import make_run


def test_what_a_gate_took_the_last_time_is_known(tmp_path: Path, echo_profile: Profile) -> None:
    make_run(tmp_path, echo_profile)

    assert {"echo": pytest.approx(10 / 60), "run": pytest.approx(5 / 60)} == pace.last_minutes(
        tmp_path, "echo"
    )
    assert {} == pace.last_minutes(tmp_path, "ci")


def test_a_damaged_verdict_of_an_older_run_stops_no_plan(tmp_path: Path, echo_profile: Profile) -> None:
    for second, damage in enumerate([None, b"{", b'{"profile": "echo"}', b"[]"]):
        folder = make_run(tmp_path, echo_profile, second=second)
        if damage is not None:
            folder.verdict_json.write_bytes(damage)

    assert {"echo", "run"} == pace.last_minutes(tmp_path, "echo").keys()


def test_a_run_without_a_gate_hides_no_older_one_that_drove_it(tmp_path: Path, echo_profile: Profile) -> None:
    make_run(tmp_path, echo_profile)
    newer = make_run(tmp_path, echo_profile, second=1)
    verdict = newer.read_verdict()
    newer.verdict_json.write_text(json.dumps(verdict | {"gates": verdict["gates"][1:]}))

    assert {"echo", "run"} == pace.last_minutes(tmp_path, "echo").keys()


@pytest.mark.parametrize("seconds", [-60.0, -1e-9, 0, 1e308, 10**300])
def test_a_time_that_no_gate_takes_is_not_expected_of_the_next(
    tmp_path: Path, echo_profile: Profile, seconds: float
) -> None:
    folder = make_run(tmp_path, echo_profile)
    verdict = folder.read_verdict()
    gates = [gate | {"seconds": seconds} for gate in verdict["gates"]]
    folder.verdict_json.write_text(json.dumps(verdict | {"gates": gates}))

    assert {} == pace.last_minutes(tmp_path, "echo")


def test_a_gate_is_expected_to_take_what_it_took_or_the_usual_part_of_its_budget() -> None:
    expected = pace.expected_minutes(
        {"needle": 4.0, "churn": 3.0, "quality": 3.0}, {"needle": 2.5, "quality": 0.0}
    )

    assert {"needle": 2.5, "churn": 2.0, "quality": 2.0} == expected


def test_gates_that_took_longer_make_the_later_ones_longer() -> None:
    run = Pace()
    assert 1.0 == run.ratio(500.0, 100.0, 0.0), "nothing is known yet"
    assert 1.0 < run.ratio(200.0, 100.0, 0.1) < run.ratio(200.0, 100.0, 1.0) < 2.0
    run.add(600.0, 300.0)
    assert run.ratio(0.0, 0.0, 0.0) == pytest.approx(660 / 360)
