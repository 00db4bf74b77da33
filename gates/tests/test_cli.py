"""Tests of the command line: exit codes, one clear message, help that needs no server."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gates import cli, planning, profile, registry, report
from gates.errors import ExitCode, InfrastructureError
from gates.harness import baseline
from gates.harness.record import write_whole
from gates.profile import Profile
from gates.tests.judged import make_run, write_history
from reports import page


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gates", *words], capture_output=True, text=True, check=False
    )


def test_help_lists_every_command() -> None:
    done = call("--help")

    assert ExitCode.PASS == done.returncode
    for command in ("run", "plan", "judge", "report", "tag", "baseline"):
        assert f" {command} " in done.stdout


def test_a_reader_that_leaves_early_changes_no_exit_code() -> None:
    with subprocess.Popen([sys.executable, "-m", "gates", "plan"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()

    assert ExitCode.PASS == process.returncode


def test_what_a_terminal_cannot_show_is_written_in_another_way(
    echo_profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, echo_profile, state="infrastructure", error="\ud800 and \u2028")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", shown)

    assert ExitCode.UNKNOWN == cli.main(["judge", str(folder.path)])
    shown.flush()
    assert b"\\ud800 and \\u2028" in shown.buffer.getvalue()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["run", "--profile", "relese"], "did you mean 'release'?", id="profile"),
        pytest.param(["run", "--only", "neddle"], "did you mean 'needle'?", id="gate"),
        pytest.param(["run", "--only"], "--only names no gate", id="no_gate"),
        pytest.param(["plan", "--only"], "--only names no gate", id="no_gate_to_plan"),
        pytest.param(["plan", "--only", "needle", "neddle"], "did you mean 'needle'?", id="second_gate"),
        pytest.param(["plan", "--profile", "none.toml"], "there is no profile file none.toml", id="file"),
        pytest.param(["run", "--server", ""], "has no {port}", id="empty_server"),
        pytest.param(["run", "--control-url", ""], "--control-url is ''", id="empty_control"),
        pytest.param(["run", "--model", "nowhere.gguf"], "no model file at nowhere.gguf", id="model"),
        pytest.param(
            ["run", "--profile", "release", "--only", "needle"], "leaves nothing out", id="selection"
        ),
        pytest.param(["run", "--server", "serve"], "has no {port}", id="server"),
        pytest.param(["run", "--server", "serve '{port}"], "No closing quotation", id="quoting"),
        pytest.param(["run", "--server", "nosuch {port}"], "there is no such program", id="program"),
        pytest.param(["run", "--seed", "many"], "many", id="seed"),
        pytest.param(["run", "--base-url", "localhost:8000"], "write http://HOST:PORT", id="address"),
        pytest.param(["run", "--base-url", "http://127.0.0.1:http"], "write http://HOST:PORT", id="port"),
        pytest.param(["judge", "nothing"], "there is no run 'nothing'", id="run"),
        pytest.param(["tag", "1.0"], "is not a version", id="version"),
        pytest.param(["jugde"], "jugde", id="command"),
    ],
)
def test_wrong_usage_is_one_message_and_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(words)
    printed = capsys.readouterr()
    said = " ".join(printed.err.split())

    assert ExitCode.USAGE == code
    assert message in said
    assert "Traceback" not in said
    assert "" == printed.out, "nothing else is said, such as the plan of a run that cannot begin"


def test_a_damaged_baseline_begins_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, runs = tmp_path / "damaged.json", tmp_path / "runs"
    damaged.write_text("{")
    monkeypatch.setattr(baseline, "path_of", lambda *_, **__: damaged)

    assert ExitCode.USAGE == cli.main(["run", "--only", "needle", "--runs", str(runs)])
    printed = capsys.readouterr()
    assert f"baseline {damaged} is not JSON" in " ".join(printed.err.split())
    assert "" == printed.out
    assert [] == list(runs.iterdir())


@pytest.mark.parametrize("option", ["--base-url", "--control-url"])
def test_an_address_without_a_server_begins_no_run(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["run", option, "http://127.0.0.1:9", "--runs", str(tmp_path)])
    printed = capsys.readouterr()

    assert ExitCode.INFRASTRUCTURE == code
    assert f"no server answers at http://127.0.0.1:9, given by {option}" in printed.err
    assert "" == printed.out
    assert [] == list(tmp_path.iterdir())


def test_a_place_where_no_run_can_be_kept_is_said_before_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.write_text("")

    assert ExitCode.INFRASTRUCTURE == cli.main(["run", "--runs", str(place)])
    printed = capsys.readouterr()
    assert f"no run folder can be made in {place}: File exists" in printed.err
    assert "" == printed.out


def test_a_full_disk_is_one_message_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "run.json")

    monkeypatch.setattr(planning, "show", full)

    assert ExitCode.INFRASTRUCTURE == cli.main(["plan"])
    said = capsys.readouterr().err
    assert "No space left on device: 'run.json'; make room" in said
    assert "Traceback" not in said


def test_a_bug_of_the_harness_never_looks_like_a_broken_claim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(planning, "show", broken)

    assert ExitCode.INFRASTRUCTURE == cli.main(["plan"])
    assert "ZeroDivisionError: by nothing" in capsys.readouterr().err


def test_a_data_folder_that_is_not_there_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKGATE_DATA", "/nowhere/at/all")

    assert ExitCode.USAGE == cli.main(["run"])
    assert "SPARKGATE_DATA is '/nowhere/at/all'" in capsys.readouterr().err


def test_the_plan_names_gates_claims_limits_and_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    assert ExitCode.PASS == cli.main(["plan", "--profile", "ci"])
    said = capsys.readouterr().out

    assert "plan of profile ci" in said
    every = (*profile.load("ci").gates, registry.RUN)
    notices = [m for gate in every for m in gate.measures if m.notice]
    assert len(notices) == said.count("(a notice)")
    assert "The run itself: 1 claims, 1 notices" in said
    assert "cells, budget 4 min" in said


def test_the_plan_is_json_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    assert ExitCode.PASS == cli.main(["plan", "--profile", "release", "--json"])

    assert "release" == json.loads(capsys.readouterr().out)["profile"]


@pytest.mark.usefixtures("echo_gate")
@pytest.mark.parametrize(("right", "wrong", "code"), [(4, 0, 0), (3, 1, 1), (0, 0, 3)])
def test_judging_ends_with_the_code_and_the_word_of_the_verdict(
    tmp_path: Path,
    echo_profile: Profile,
    capsys: pytest.CaptureFixture[str],
    right: int,
    wrong: int,
    code: int,
) -> None:
    make_run(tmp_path, echo_profile, right=right, wrong=wrong)

    assert code == cli.main(["judge", "latest", "--runs", str(tmp_path)])
    word = {0: "PASS", 1: "FAIL", 3: "UNKNOWN"}[code]
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith(word)


@pytest.mark.usefixtures("echo_gate")
@pytest.mark.parametrize(
    ("recorded", "now", "code", "last"),
    [
        ("fail", "pass", 3, "UNKNOWN: profile echo, 2 of 2 claims hold - judged again it would pass; NOT"),
        ("pass", "pass", 3, "UNKNOWN: profile echo, 2 of 2 claims hold - judged again it would pass; NOT"),
        ("pass", "fail", 1, "FAIL: profile echo, 1 of 2 claims hold - NOT what was recorded: verdict was"),
    ],
)
def test_judging_a_changed_record_says_so_last_and_never_ends_with_0(
    tmp_path: Path,
    echo_profile: Profile,
    capsys: pytest.CaptureFixture[str],
    recorded: str,
    now: str,
    code: int,
    last: str,
) -> None:
    folder = make_run(tmp_path, echo_profile, wrong=int(recorded == "fail"))
    folder.history("echo").unlink()
    write_history(folder.history("echo"), right=5, wrong=int(now == "fail"))

    assert code == cli.main(["judge", "latest", "--runs", str(tmp_path)])
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert lines[-1].startswith(last)
    assert lines[-2].startswith("Not to be merged")


@pytest.mark.usefixtures("echo_gate")
def test_judging_names_the_page_that_is_there_unless_it_is_of_another_verdict(
    tmp_path: Path, echo_profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path, echo_profile)
    said = []
    for changed in ({}, {"verdict": "unknown"}):
        record = folder.read_verdict() | changed
        folder.report.mkdir(exist_ok=True)
        write_whole(folder.report / "index.html", page.fragment(record, folder.read_details()))
        cli.main(["judge", "latest", "--runs", str(tmp_path)])
        said.append(capsys.readouterr().out)

    assert f"HTML report: {folder.report / 'index.html'}" in said[0]
    assert f"HTML report: python -m gates report {folder.path.name}" in said[1]


def test_a_page_that_cannot_be_made_leaves_the_word_of_the_verdict_last(
    tmp_path: Path,
    echo_profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_run(tmp_path, echo_profile)

    def no_tool(_: object) -> Path:
        raise InfrastructureError("no registry")

    monkeypatch.setattr(report, "make", no_tool)

    assert ExitCode.INFRASTRUCTURE == cli.main(["report", "latest", "--runs", str(tmp_path)])
    said = capsys.readouterr()
    assert "InfrastructureError: no registry" in said.err
    assert said.out.rstrip().splitlines()[-1].startswith("PASS")
