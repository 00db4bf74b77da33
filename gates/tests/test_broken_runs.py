"""Tests of runs in which the harness, a gate or the server breaks: unknown or infrastructure, and where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gates import conduct, registry
from gates.conduct import Drive
from gates.errors import ExitCode
from gates.harness import launch
from gates.harness.progress import Board
from gates.harness.record import RunFolder
from gates.profile import Profile, checked
from gates.tests.conftest import ECHO, echo_tables
from gates.tests.runs import do, quiet, verdict_of


def test_a_gate_far_over_its_budget_is_given_up(model_file: Path, echo_gate: object) -> None:
    del echo_gate
    tables = echo_tables()
    tables["run"]["give_up_ratio"] = 0
    code, folder, _ = do(checked("echo", tables, ""), model_file)

    assert ExitCode.UNKNOWN == code
    assert "many times its budget" in verdict_of(folder)["reasons"][0]


def test_a_bug_in_a_check_is_unknown_and_names_its_place(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("gates.tests.echo.check.check", broken)
    code, folder, _ = do(echo_profile, model_file)

    assert ExitCode.UNKNOWN == code
    assert "the check raised ZeroDivisionError: by nothing (broken" in verdict_of(folder)["reasons"][0]


def test_a_gate_whose_room_is_missing_is_infrastructure(
    model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "GATES", (replace(ECHO, room="gates.tests.nowhere"),))

    code, folder, _ = do(checked("echo", echo_tables(), ""), model_file)
    assert ExitCode.INFRASTRUCTURE == code
    assert "has no module gates.tests.nowhere.test_echo" in verdict_of(folder)["reasons"][0]
    assert "cannot be imported" in verdict_of(folder)["gates"][0]["measures"][0]["note"]


def test_a_break_inside_the_test_runner_is_infrastructure(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("gates.plugin.Claim", broken)
    code, folder, _ = do(echo_profile, model_file)

    assert ExitCode.INFRASTRUCTURE == code
    assert "ZeroDivisionError: by nothing" in folder.read_run()["error"]
    assert [] == folder.read_run()["leftover"]


class Stub:
    """A server that is there or gone as told, at an address where nobody answers."""

    base_url = f"http://127.0.0.1:{launch.free_port()}"
    pid: int | None = None

    def __init__(self, *, there: bool) -> None:
        self.there = there

    def alive(self) -> bool:
        """As told."""
        return self.there

    def stop(self) -> tuple[str, ...]:
        """Nothing."""
        return ()


@pytest.mark.parametrize(
    ("there", "note"),
    [
        pytest.param(
            False, "the server died before the gate had finished (before this gate began)", id="dead"
        ),
        pytest.param(True, "/health was not good within 30 s before it began", id="wedged"),
    ],
)
def test_a_gate_after_the_death_of_the_server_is_unknown_and_asks_nothing(
    echo_profile: Profile, tmp_path: Path, there: bool, note: str
) -> None:
    folder = RunFolder(tmp_path)
    drive = Drive(echo_profile, folder, Stub(there=there), 7)
    conduct.drive_gate(drive, ECHO, Board(quiet()))
    verdict = conduct.judge_gate(folder, ECHO, echo_profile.table("echo"))

    assert ("unknown", 0) == (verdict.verdict, verdict.operations["asked"])
    assert note in verdict.judgement.measures[0].note


def test_a_bug_in_a_drive_is_unknown_and_kept_in_the_history(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("gates.tests.echo.drive.drive", broken)
    code, folder, _ = do(echo_profile, model_file)

    assert ExitCode.UNKNOWN == code
    assert "the harness broke while it drove the gate (KeyError: 'lost')" in verdict_of(folder)["reasons"][0]
