"""Tests of the run folder: names, the link to the newest, and files that are whole or not there."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gates import judge
from gates.errors import InfrastructureError, UsageError
from gates.harness import record
from gates.harness.record import RunFolder
from gates.profile import Profile, load
from gates.tests.judged import make_run, run_record

NOW = datetime(2026, 11, 30, 9, 25, 0, tzinfo=UTC)


def make(root: Path, *, profile: str = "ci") -> RunFolder:
    folder = record.create(root, profile=profile, commit="1af82ad", now=NOW)
    folder.write_run(run_record(load("ci"), chosen=["quality"]))
    return folder


def test_a_folder_is_named_by_time_profile_and_commit(tmp_path: Path) -> None:
    assert "20261130T092500Z-ci-1af82ad" == make(tmp_path).path.name


def test_two_runs_within_one_second_have_folders_of_their_own_in_order(tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)

    assert [first.path, second.path] == record.runs(tmp_path)


def test_latest_is_the_newest_and_no_run_of_its_own(tmp_path: Path) -> None:
    make(tmp_path)
    newest = make(tmp_path, profile="release")

    assert newest.path == record.find(tmp_path, "latest").path
    assert 2 == len(record.runs(tmp_path))


def test_a_run_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    folder = make(tmp_path)

    assert (
        folder == record.find(tmp_path, folder.path.name) == record.find(Path("elsewhere"), str(folder.path))
    )


def test_a_run_of_the_named_place_goes_before_one_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = make(tmp_path / "here"), make(tmp_path / "there")
    monkeypatch.chdir(here.path.parent)

    assert there.path == record.find(there.path.parent, "latest").path
    assert here.path == record.find(tmp_path / "none", "latest").path


def test_an_unknown_run_is_answered_with_the_newest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the newest runs are: none yet"):
        record.find(tmp_path, "latest")
    name = make(tmp_path).path.name
    with pytest.raises(UsageError, match=f"no run 'x'.*the newest runs are: {name}"):
        record.find(tmp_path, "x")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1}', "[" * 100_000])
def test_a_spoiled_run_record_is_refused(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path)
    folder.run_json.write_text(text)

    with pytest.raises(UsageError, match=r"run\.json"):
        folder.read_run()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"state": "done"}, "state is 'done', allowed: running, finished"),
        ({"chosen": []}, r"chosen is \[\], allowed: a list of at least 1"),
        ({"settings": None}, "settings is None, allowed: an object"),
        ({"seconds": 10**400}, "seconds is .*, allowed: a number"),
        ({"started_utc": "yesterday"}, "started_utc is 'yesterday', allowed: a time"),
        ({"host": {}}, "host lacks system"),
        ({"model": {"file": "m", "bytes": 1, "sha256": 5}}, "model.sha256 is 5, allowed: a text"),
        ({"leftover": [7]}, r"leftover\[0\] is 7, allowed: a text"),
    ],
)
def test_an_edited_run_record_is_refused_by_the_field(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    folder = make(tmp_path)
    folder.write_run(folder.read_run() | changes)

    with pytest.raises(UsageError, match=rf"run\.json is damaged or was edited.*{fault}.*; restore it, or"):
        folder.read_run()


def test_a_run_of_no_gate_that_its_settings_have_is_no_pass(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.write_run(folder.read_run() | {"chosen": ["nothing"]})

    with pytest.raises(UsageError, match="it says that it drove nothing, and its settings are those of"):
        judge.judge(folder)


@pytest.mark.parametrize(
    "changes", [{"gates": []}, {"gates": None}, {"verdict": "perfect"}, {"reasons": [1]}, {"run": {}}]
)
def test_an_edited_verdict_is_refused(tmp_path: Path, echo_profile: Profile, changes: dict[str, Any]) -> None:
    folder = make_run(tmp_path, echo_profile)
    folder.verdict_json.write_text(json.dumps(folder.read_verdict() | changes))

    with pytest.raises(
        UsageError, match=r"verdict\.json is damaged or was edited.*; move it away, then judge"
    ):
        folder.read_verdict()


@pytest.mark.parametrize(
    ("field", "value"),
    [("interval", [1.0]), ("estimate", "0.5"), ("judged", None), ("baseline", "x"), ("unit", 1)],
)
def test_a_measure_with_a_field_that_no_view_can_show_is_refused(
    field: str, value: Any, tmp_path: Path, echo_profile: Profile
) -> None:
    folder = make_run(tmp_path, echo_profile)
    content = folder.read_verdict()
    content["gates"][0]["measures"][0][field] = value
    folder.verdict_json.write_text(json.dumps(content))

    with pytest.raises(UsageError, match=rf"damaged or was edited.*measures\[0\]\.{field}"):
        folder.read_verdict()


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_no_record_can_hold_is_refused_wherever_it_stands(
    tmp_path: Path, echo_profile: Profile, number: str
) -> None:
    folder = make_run(tmp_path, echo_profile)
    for path in (folder.run_json, folder.verdict_json):
        path.write_text(path.read_text().replace('"load_1min": 0.1', f'"load_1min": {number}'))

    with pytest.raises(UsageError, match=r"run\.json is not JSON"):
        folder.read_run()
    with pytest.raises(UsageError, match=r"verdict\.json is not JSON"):
        folder.read_verdict()


@pytest.mark.parametrize("schema", [0, 2, None, "1"])
def test_a_verdict_of_another_schema_is_refused(tmp_path: Path, echo_profile: Profile, schema: Any) -> None:
    folder = make_run(tmp_path, echo_profile)
    folder.verdict_json.write_text(json.dumps(folder.read_verdict() | {"schema": schema}))

    with pytest.raises(UsageError, match="is not a verdict of schema 1; move it away"):
        folder.read_verdict()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}'])
def test_a_spoiled_verdict_is_refused(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path)
    folder.verdict_json.write_text(text)

    with pytest.raises(UsageError, match=r"verdict\.json"):
        folder.read_verdict()


def test_where_nothing_can_be_written_the_run_ends_with_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InfrastructureError, match="name another place with --runs"):
        make(tmp_path / "file")


def test_a_folder_without_a_record_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no run\.json"):
        RunFolder(tmp_path).read_run()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_breaks_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "verdict.json"
    record.write_json(path, {"a": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        record.write_json(path, {"a": 2})

    assert {"a": 1} == json.loads(path.read_bytes())
    assert [path] == list(tmp_path.iterdir())


def test_a_value_that_json_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        record.write_json(tmp_path / "x.json", {"a": float("nan")})
