"""Tests of whole runs against the fake server: verdict, exit code, record and what is left behind."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gates import planning, registry, run
from gates.errors import ExitCode
from gates.harness import record
from gates.harness.record import RunFolder
from gates.profile import Profile, checked
from gates.run import Request
from gates.target import Target
from gates.tests.conftest import ECHO, echo_tables, fake_command
from gates.tests.runs import do, quiet, running, verdict_of


def test_a_server_that_does_not_start_is_said_once(echo_profile: Profile, model_file: Path) -> None:
    _, _, said = do(echo_profile, model_file, "ends_at_once")

    assert 2 == said.count("before it was healthy")  # what happened, and the last line
    assert "echo." not in said


def test_the_report_asked_for_is_that_of_this_run(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RunFolder] = []

    def make(folder: RunFolder) -> Path:
        made.append(folder)
        return folder.path

    monkeypatch.setattr("gates.report.make", make)
    target = Target(model=model_file, server=fake_command("none", after=0))
    runs = model_file.parent / "runs"
    request = Request(profile=echo_profile, target=target, runs=runs, html=True)

    console = Console(file=io.StringIO(), width=200)
    assert ExitCode.PASS == run.run(request, console)
    assert [record.find(runs, "latest").path] == [folder.path for folder in made]
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert f"HTML report: {made[0].path}\n" in said
    assert "python -m gates report" not in said, "it is made already"


def test_a_run_without_the_report_says_how_to_make_it(echo_profile: Profile, model_file: Path) -> None:
    _, folder, said = do(echo_profile, model_file)

    assert f"HTML report: python -m gates report {folder.path.name}\n" in said


def test_an_honest_server_passes_and_leaves_the_whole_record(echo_profile: Profile, model_file: Path) -> None:
    code, folder, said = do(echo_profile, model_file)

    assert ExitCode.PASS == code
    assert said.rstrip().splitlines()[-1].startswith("PASS: profile echo, 2 of 2 claims hold")
    assert {"run.json", "verdict.json", "verdict.md", "junit.xml", "allure", "echo", "server.log"} <= {
        path.name for path in folder.path.iterdir()
    }
    assert 3 == len(list(folder.allure.glob("*-result.json")))


def test_the_record_says_what_was_judged(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    content = folder.read_run()

    assert ("finished", ["echo"], 7, []) == tuple(
        content[name] for name in ("state", "chosen", "seed", "leftover")
    )
    assert ("model.gguf", 11) == (content["model"]["file"], content["model"]["bytes"])
    assert ["fake"] == content["served_models"]
    assert str(model_file.parent) not in json.dumps(content)


@pytest.mark.parametrize(
    ("fault", "after", "code", "verdict"),
    [
        pytest.param("refuses", 2, ExitCode.FAIL, "fail", id="wrong_answers"),
        pytest.param("cut", 3, ExitCode.FAIL, "fail", id="streams_that_stop"),
        pytest.param("dies", 2, ExitCode.UNKNOWN, "unknown", id="death_within_a_gate"),
        pytest.param("ends_at_once", 0, ExitCode.INFRASTRUCTURE, "unknown", id="no_start"),
        pytest.param("leaves_child", 0, ExitCode.FAIL, "fail", id="a_process_left_behind"),
    ],
)
def test_each_way_to_go_wrong_has_its_exit_code(
    echo_profile: Profile, model_file: Path, fault: str, after: int, code: ExitCode, verdict: str
) -> None:
    found, folder, said = do(echo_profile, model_file, fault, after=after)

    assert (code, verdict) == (found, verdict_of(folder)["verdict"])
    assert said.rstrip().splitlines()[-1].startswith(verdict.upper())
    assert folder.verdict_md.is_file()


@pytest.mark.usefixtures("echo_gate")
def test_a_server_that_hangs_is_given_up_after_three_lost_requests(model_file: Path) -> None:
    tables = echo_tables(words=9)
    tables["server"]["request_seconds"] = 0.3
    code, folder, _ = do(checked("echo", tables, ""), model_file, "hangs")

    assert ExitCode.UNKNOWN == code
    assert {"asked": 3, "answered": 0, "failed": 0, "lost": 3} == verdict_of(folder)["gates"][0]["operations"]
    assert "3 requests in a row without an answer" in verdict_of(folder)["reasons"][0]


@pytest.mark.usefixtures("echo_gate")
def test_a_run_over_its_budget_says_so_and_still_passes(model_file: Path) -> None:
    tables = echo_tables(budget_minutes=1e-6)
    tables["run"]["give_up_ratio"] = 1e9
    code, folder, said = do(checked("echo", tables, ""), model_file)
    budget = verdict_of(folder)["gates"][1]["measures"][1]

    assert ExitCode.PASS == code
    assert ("run.budget_ratio", "fail", True) == (budget["id"], budget["verdict"], budget["notice"])
    assert "NOTICE" in said


def test_progress_names_gate_and_cell_and_the_verdict_so_far(echo_profile: Profile, model_file: Path) -> None:
    _, _, said = do(echo_profile, model_file)

    assert "Echo: the last word comes back - budget 1 min" in said
    assert "cell 1 of 4: word" in said
    assert "Echo: the last word comes back - PASS - 1 of 1 claims hold" in said


def test_a_failed_run_prints_how_to_ask_the_same_again(echo_profile: Profile, model_file: Path) -> None:
    _, folder, said = do(echo_profile, model_file, "refuses")
    command = "python -m gates run --profile echo.toml --seed 7 --only echo --model PATH"

    assert command in said
    assert command in folder.verdict_md.read_text()


def test_what_the_server_counts_is_kept_with_each_gate(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)

    assert "asked_total 4\n" == folder.metrics("echo").read_text()


def test_no_key_gets_into_the_record(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKGATE_API_KEY", "canary-7f3a")
    runs = model_file.parent / "runs"
    target = Target(model=model_file, server=fake_command(), api_key="canary-7f3a")
    request = Request(profile=echo_profile, target=target, runs=runs)
    run.run(request, quiet())
    files = [path for path in runs.rglob("*") if path.is_file()]

    assert len(files) > 5
    assert [] == [path for path in files if b"canary-7f3a" in path.read_bytes()]


def test_the_verdict_is_said_once_and_last(echo_profile: Profile, model_file: Path) -> None:
    _, _, said = do(echo_profile, model_file)

    assert ["PASS: profile echo, 2 of 2 claims hold"] == [
        line for line in said.splitlines() if line.startswith("PASS")
    ]
    assert said.rstrip().endswith("claims hold")


@pytest.mark.parametrize("launched", [True, False])
def test_plan_and_verdict_count_the_same_claims(
    launched: bool, echo_profile: Profile, model_file: Path
) -> None:
    planned = planning.plan(echo_profile, (), launched=launched)
    claims = [*planned["own_claims"], *(claim for gate in planned["gates"] for claim in gate["claims"])]
    if launched:
        _, folder, _ = do(echo_profile, model_file)
    else:
        with running() as address:
            target = Target(base_urls=(address,))
            run.run(Request(profile=echo_profile, target=target, runs=model_file.parent), quiet())
        folder = record.find(model_file.parent, "latest")

    judged = [measure for gate in verdict_of(folder)["gates"] for measure in gate["measures"]]

    assert {claim["id"] for claim in claims} == {measure["id"] for measure in judged}
    assert ("given" if launched else "served elsewhere") == planned["model"]


def test_a_white_box_gate_knows_nothing_of_another_server(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "GATES", (replace(ECHO, white_box=True),))
    code, folder, _ = do(echo_profile, model_file)

    assert ExitCode.UNKNOWN == code
    assert "given up: it judges the engine of this checkout" in verdict_of(folder)["reasons"][0]
