"""Tests of judging a recorded run again: the same verdict, and every change of the record is seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates import conduct, judge, merge
from gates.errors import UsageError
from gates.harness.verdict import GateVerdict, Judgement, Measure
from gates.profile import Profile
from gates.tests.judged import make_run
from gates.tests.runs import do, verdict_of


@pytest.mark.parametrize(("fault", "after"), [("none", 0), ("refuses", 2), ("dies", 1)])
def test_a_run_judged_again_gives_the_recorded_verdict(
    echo_profile: Profile, model_file: Path, fault: str, after: int
) -> None:
    _, folder, _ = do(echo_profile, model_file, fault, after=after)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}

    assert () == judge.judge(folder).differences
    assert "the same verdict as recorded" == judge.write(folder, judge.judge(folder))
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_a_claim_that_had_nothing_to_judge_is_among_what_was_not_tested(
    echo_profile: Profile, tmp_path: Path
) -> None:
    run = make_run(tmp_path, echo_profile).read_run()
    nothing = Measure("echo.right_ratio", 1.0, 1.0, "higher", 0, note="no card is here")
    something = replace(nothing, n=4)
    found = [
        conduct._not_tested(run, echo_profile, [GateVerdict("echo", 0.0, None, Judgement((one,)))])
        for one in (nothing, something)
    ]

    said = "The last word comes back (echo.right_ratio): there was nothing of it in this run"
    assert [True, False] == [said in lines for lines in found]


def test_a_record_changed_afterwards_is_seen(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    path = folder.history("echo")
    path.write_bytes(path.read_bytes().replace(b"You said word", b"You said bird", 1))
    again = judge.judge(folder)

    assert "verdict was pass, is fail" == again.differences[0]
    assert "NOT the recorded verdict" in judge.write(folder, again)
    assert "pass" == verdict_of(folder)["verdict"]
    assert (folder.path / "verdict.rejudged.json").is_file()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"limit": 0.5}, "echo.right_ratio: limit was 0.5, is 1"),
        ({"estimate": None}, "echo.right_ratio: estimate was None, is absent"),
        ({"value": 0.5}, r"echo.right_ratio was pass \(0.5\), is pass \(1.0\)"),
    ],
)
def test_what_differs_of_a_claim_is_said(
    tmp_path: Path, echo_profile: Profile, changed: dict[str, Any], said: str
) -> None:
    folder = make_run(tmp_path, echo_profile)
    content = folder.read_verdict()
    content["gates"][0]["measures"][0] |= changed
    folder.verdict_json.write_text(json.dumps(content))

    with pytest.raises(UsageError, match=said):
        judge.confirm(folder)


def test_a_record_changed_after_its_verdict_is_not_confirmed(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    judge.confirm(folder)
    path = folder.history("echo")
    path.write_bytes(path.read_bytes().replace(b"You said word", b"You said  word", 1))

    with pytest.raises(UsageError, match="judged again is not what was recorded"):
        judge.confirm(folder)


def test_a_run_of_another_registry_is_sent_to_its_own_commit(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    settings = folder.read_run()["settings"]
    del settings["run"]["budget_minutes"]
    folder.write_run(folder.read_run() | {"settings": settings})

    with pytest.raises(UsageError, match="judge it at its own commit") as error:
        judge.judge(folder)
    assert "[run] budget_minutes: missing key" in str(error.value)


def test_a_history_with_a_damaged_line_is_judged_unknown(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    path = folder.history("echo")
    path.write_bytes(path.read_bytes().replace(b'"kind"', b'"kinb"', 1))
    again = judge.judge(folder)

    assert "unknown" == again.content["verdict"]
    assert "the record is damaged (history.jsonl, line 1: not a history event" in again.content["reasons"][0]


def test_a_run_that_was_killed_is_judged_unknown(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    folder.write_run(folder.read_run() | {"state": "running", "leftover": None})
    folder.verdict_json.unlink()

    assert "the run had no verdict yet: written" == judge.write(folder, judge.judge(folder))
    assert "unknown" == verdict_of(folder)["verdict"]
    assert "the run stopped before its end; the record is incomplete" == verdict_of(folder)["reasons"][0]


def test_a_run_that_goes_on_is_judged_so_far_and_nothing_is_written(
    echo_profile: Profile, model_file: Path
) -> None:
    _, folder, _ = do(echo_profile, model_file)
    folder.write_run(folder.read_run() | {"state": "running", "leftover": None})
    folder.verdict_json.unlink()
    with folder.held():
        judged = judge.judge(folder)
        said = judge.write(folder, judged)

    since = folder.read_run()["started_utc"]
    assert f"the run is going on, since {since}; this is its record so far" == judged.content["reasons"][0]
    assert ("unknown", "the run is going on: nothing was written") == (judged.content["verdict"], said)
    assert not folder.verdict_json.is_file()


def test_parts_that_go_on_are_not_joined(echo_profile: Profile, tmp_path: Path) -> None:
    folders = [make_run(tmp_path, echo_profile, second=second) for second in (1, 2)]

    with folders[1].held(), pytest.raises(UsageError, match="is going on: join it with the others when"):
        merge.merge(folders, tmp_path)
