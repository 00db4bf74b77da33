"""Tests of joined records: parts of one run give its verdict, and what are no parts is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gates import cli, conduct, judge, merge
from gates.errors import UsageError
from gates.harness import history
from gates.harness.record import RunFolder
from gates.profile import Profile
from gates.tests.judged import make_run, measures, run_record


def parts(root: Path, profile: Profile) -> list[RunFolder]:
    return [make_run(root, profile, second=number, right=2 - number, wrong=number) for number in (0, 1)]


def test_parts_are_judged_as_one_run(tmp_path: Path, echo_profile: Profile) -> None:
    joined = merge.merge(parts(tmp_path, echo_profile), tmp_path)
    whole = make_run(tmp_path, echo_profile, second=9, right=3, wrong=1)
    judge.write(joined, judge.judge(joined))
    found, expected = (
        measures(json.loads(folder.verdict_json.read_bytes()))["echo.right_ratio"]
        for folder in (joined, whole)
    )

    assert (3, 4, 0.75) == (round(found["value"] * found["n"]), found["n"], found["value"])
    assert expected == found


def test_every_operation_keeps_its_own_end(tmp_path: Path, echo_profile: Profile) -> None:
    joined = merge.merge(parts(tmp_path, echo_profile), tmp_path)
    asked = history.operations(history.read(joined.history("echo")))

    assert [0, 1, 2, 3] == [operation.invoke.op for operation in asked]
    assert all(operation.outcome == "ok" for operation in asked)


def test_items_of_all_parts_stand_once_in_an_order_that_no_part_decides(
    tmp_path: Path, echo_profile: Profile
) -> None:
    folders = parts(tmp_path, echo_profile)
    folders[0].items("echo").write_text('{"item": "b"}\n{"item": "a"}\n')
    folders[1].items("echo").write_text('{"item": "b"}\n{"item": "c"}\n{"item": "torn')
    joined = [merge.merge(order, tmp_path) for order in (folders, folders[::-1])]

    assert ["a", "b", "c"] == [event.get("item") for event in history.items(joined[0].items("echo"))]
    assert joined[0].items("echo").read_bytes() == joined[1].items("echo").read_bytes()


def test_a_part_that_did_not_finish_leaves_the_whole_unknown(tmp_path: Path, echo_profile: Profile) -> None:
    folders = [make_run(tmp_path, echo_profile, second=number, right=2) for number in (0, 1)]
    path = folders[0].history("echo")
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")  # the last line says: finished
    (gate, _) = conduct.judge_run(merge.merge(folders, tmp_path), echo_profile).gates

    assert "unknown" == gate.verdict
    assert "stops before the gate had finished" in gate.judgement.measures[0].note


@pytest.mark.parametrize("killed", [1, 2])
def test_parts_that_were_killed_before_they_wrote_their_end_are_judged_too(
    tmp_path: Path, echo_profile: Profile, killed: int
) -> None:
    folders = parts(tmp_path, echo_profile)
    for folder in folders[:killed]:
        rest = {name: value for name, value in folder.read_run().items() if name != "finished_utc"}
        folder.write_run({**rest, "state": "running"})
    joined = merge.merge(folders, tmp_path)
    judge.write(joined, judge.judge(joined))

    assert ("fail", "running") == (joined.read_verdict()["verdict"], joined.read_run()["state"])


def test_the_record_names_its_parts_and_all_that_they_left(tmp_path: Path, echo_profile: Profile) -> None:
    folders = parts(tmp_path, echo_profile)
    folders[1].write_run(run_record(echo_profile, leftover=["port 1"], seconds=9.0, state="interrupted"))
    run = merge.merge(folders, tmp_path).read_run()

    assert [folder.path.name for folder in folders] == run["merged"]
    assert (["port 1"], 9.0, "interrupted") == (run["leftover"], run["seconds"], run["state"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 8}, "seed"),
        ({"model": None}, "model"),
        ({"profile_sha256": "1" * 64, "chosen": ["other"]}, "profile, gates"),
    ],
)
def test_runs_that_are_no_parts_of_one_are_refused(
    tmp_path: Path, echo_profile: Profile, changes: dict[str, Any], words: str
) -> None:
    folders = parts(tmp_path, echo_profile)
    folders[1].write_run(run_record(echo_profile, **changes))

    with pytest.raises(UsageError, match=f"no parts of one run: they differ in {words}$"):
        merge.merge(folders, tmp_path)


def test_a_run_named_twice_or_another_baseline_is_refused(tmp_path: Path, echo_profile: Profile) -> None:
    folders = parts(tmp_path, echo_profile)
    with pytest.raises(UsageError, match="named twice"):
        merge.merge([folders[0], folders[0]], tmp_path)

    folders[0].baseline_json.write_text("{}")
    with pytest.raises(UsageError, match="different baselines"):
        merge.merge(folders, tmp_path)


def test_the_command_joins_the_runs_that_it_is_given(
    tmp_path: Path, echo_profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [folder.path.name for folder in parts(tmp_path, echo_profile)]

    assert 1 == cli.main(["judge", *names, "--runs", str(tmp_path)])
    assert "FAIL: profile echo" in capsys.readouterr().out
    assert 0 == cli.main(["judge", names[0], "--runs", str(tmp_path)])
