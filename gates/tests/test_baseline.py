"""Tests of baselines: promoted by hand from a pass, adopted by runs of the same model and profile alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates import conduct, judge, registry
from gates.errors import UsageError
from gates.harness import baseline
from gates.profile import Profile, checked
from gates.spec import MeasureSpec
from gates.tests.conftest import ECHO, echo_tables
from gates.tests.judged import make_run, measures

MODEL = {"file": "model.gguf", "bytes": 11, "sha256": "m" * 64}


def test_a_pass_becomes_the_baseline_that_the_next_run_is_held_against(
    tmp_path: Path, echo_profile: Profile
) -> None:
    path = baseline.promote(make_run(tmp_path / "runs", echo_profile), "first numbers", root=tmp_path)
    folder = make_run(tmp_path / "runs", echo_profile, second=1, right=3, wrong=1)
    baseline.adopt(folder, MODEL, "echo", root=tmp_path)
    folder.verdict_json.unlink()
    judge.write(folder, judge.judge(folder))

    assert "model.echo.json" == path.name
    right = measures(json.loads(folder.verdict_json.read_bytes()))["echo.right_ratio"]
    assert (0.75, 1.0) == (right["value"], right["baseline"])


def test_another_model_of_the_same_name_is_no_baseline(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path / "runs", echo_profile)
    baseline.promote(folder, "first numbers", root=tmp_path)
    baseline.adopt(folder, MODEL | {"sha256": "0" * 64}, "echo", root=tmp_path)

    assert baseline.of_run(folder) is None


def test_a_server_of_unknown_model_has_no_baseline(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path / "runs", echo_profile)
    baseline.adopt(folder, None, "echo", root=tmp_path)

    assert baseline.of_run(folder) is None


def test_only_a_pass_can_be_promoted(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path, echo_profile, right=1, wrong=1)

    with pytest.raises(UsageError, match=r"is no pass \(fail\)"):
        baseline.promote(folder, "hope", root=tmp_path)


def test_a_baseline_moves_only_with_a_reason(tmp_path: Path, echo_profile: Profile) -> None:
    with pytest.raises(UsageError, match="only with a reason"):
        baseline.promote(make_run(tmp_path, echo_profile), " ", root=tmp_path)


def test_the_items_of_the_candidate_are_kept_one_a_line(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path / "runs", echo_profile)
    rows = [
        {"item": "a", "server": "candidate", "text": "né\n"},
        {"item": "b", "server": "baseline"},
        {"item": "c", "server": "candidate", "repeat": 0},
        {"item": "c", "server": "candidate", "repeat": 1},
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    folder.items("echo").write_text(text + '{"item": "torn')
    path = baseline.promote(folder, "first numbers", root=tmp_path)
    baseline.adopt(folder, MODEL, "echo", root=tmp_path)
    kept = baseline.of_run(folder)

    assert kept is not None
    assert {"echo": [rows[0], rows[2]]} == kept.items
    assert 2 == sum('"item"' in line for line in path.read_text().splitlines())


def test_a_claim_that_found_nothing_to_compare_with_does_not_forbid_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop = MeasureSpec("echo.drop_ratio", "Nothing is lost", "lower", paired=True)
    monkeypatch.setattr(registry, "GATES", (replace(ECHO, measures=(*ECHO.measures, drop)),))
    profile = checked("echo", echo_tables(max_drop_ratio=0.1), "0" * 64)

    assert baseline.promote(make_run(tmp_path / "runs", profile), "the first", root=tmp_path).is_file()
    with pytest.raises(UsageError, match=r"is no pass \(fail\): echo.right_ratio"):
        baseline.promote(make_run(tmp_path / "runs", profile, second=1, wrong=1), "hope", root=tmp_path)


def test_a_run_that_did_not_end_is_no_baseline(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path, echo_profile, state="interrupted")

    with pytest.raises(UsageError, match=r"is no pass \(unknown\)"):
        baseline.promote(folder, "hope", root=tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 9}'])
def test_a_spoiled_baseline_stops_the_run(tmp_path: Path, echo_profile: Profile, text: str) -> None:
    folder = make_run(tmp_path / "runs", echo_profile)
    baseline.path_of("model.gguf", "echo", root=tmp_path).write_text(text)

    with pytest.raises(UsageError, match="baseline"):
        baseline.adopt(folder, MODEL, "echo", root=tmp_path)


def test_judging_needs_nothing_but_the_run_folder(
    tmp_path: Path, echo_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, echo_profile)
    monkeypatch.setattr(registry, "GATES", (ECHO, replace(ECHO, name="further", title="Further")))

    found = conduct.judge_run(folder, echo_profile).not_tested

    assert "Further: not in profile echo" == found[0]
    assert "A release: only a pass of profile release allows its tag, this is echo" in found


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"measures": {"echo.right_ratio": "high"}},
            "measures.echo.right_ratio is 'high', allowed: a number",
        ),
        ({"items": {"quality": [1]}}, r"items.quality\[0\] is 1, allowed: an object"),
        ({"items": None}, "items is None, allowed: an object"),
    ],
)
def test_an_edited_baseline_stops_the_run_and_names_the_field(
    tmp_path: Path, echo_profile: Profile, changes: dict[str, Any], fault: str
) -> None:
    folder = make_run(tmp_path / "runs", echo_profile)
    path = baseline.promote(folder, "a first one", root=tmp_path)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))

    with pytest.raises(UsageError, match=f"is damaged or was edited: .*{fault}"):
        baseline.adopt(folder, MODEL, "echo", root=tmp_path)
