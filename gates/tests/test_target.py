"""Tests of what a run may judge: its own server, one by address, a control; and what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates import run
from gates.errors import ExitCode, InfrastructureError, UsageError
from gates.harness import record
from gates.profile import Profile, checked
from gates.run import Request
from gates.target import Target
from gates.tests.conftest import echo_tables, fake_command
from gates.tests.judged import make_run
from gates.tests.runs import quiet, running, verdict_of


def test_a_control_is_served_beside_and_ended_too(echo_profile: Profile, model_file: Path) -> None:
    other = model_file.with_name("other.gguf")
    other.write_bytes(b"another")
    target = Target(model=model_file, server=fake_command(), control_model=other)
    code = run.run(Request(profile=echo_profile, target=target, runs=model_file.parent / "runs"), quiet())
    folder = record.find(model_file.parent / "runs", "latest")

    assert ExitCode.PASS == code
    assert ("other.gguf", []) == (folder.read_run()["control"]["file"], folder.read_run()["leftover"])
    assert (folder.path / "control.log").is_file()


def test_a_running_server_is_judged_by_its_address(echo_profile: Profile, tmp_path: Path) -> None:
    with running() as address:
        request = Request(profile=echo_profile, target=Target(base_urls=(address,)), runs=tmp_path)
        code = run.run(request, quiet())
    folder = record.find(tmp_path, "latest")

    assert ExitCode.PASS == code
    assert address not in folder.run_json.read_text()
    assert [("run.budget_ratio", "pass")] == [
        (measure["id"], measure["verdict"]) for measure in verdict_of(folder)["gates"][1]["measures"]
    ]


@pytest.mark.usefixtures("echo_gate")
def test_a_selection_is_refused_where_the_profile_leaves_nothing_out() -> None:
    tables = echo_tables()
    tables["run"]["selection"] = False

    with pytest.raises(UsageError, match="leaves nothing out"):
        run.chosen(Request(profile=checked("release", tables, ""), only=("echo",)))


def test_an_unknown_gate_is_answered_with_the_nearest(echo_profile: Profile) -> None:
    with pytest.raises(UsageError, match=r"no such gate \(did you mean 'echo'\?\)"):
        run.chosen(Request(profile=echo_profile, only=("ecoh",)))


def test_a_profile_that_wants_a_model_says_so(echo_profile: Profile) -> None:
    with pytest.raises(UsageError, match="add --model PATH or --base-url"):
        Target().model_file(echo_profile)


def test_a_model_that_is_not_there_is_named(echo_profile: Profile) -> None:
    with pytest.raises(UsageError, match=r"no model file at nowhere\.gguf"):
        Target(model=Path("nowhere.gguf")).model_file(echo_profile)


def test_an_address_and_a_model_together_are_refused(echo_profile: Profile) -> None:
    with pytest.raises(UsageError, match="already runs"):
        Target(model=Path("m"), base_urls=("http://127.0.0.1:1",)).model_file(echo_profile)


def test_an_address_where_nobody_answers_replaces_no_run(echo_profile: Profile, tmp_path: Path) -> None:
    """`latest` stays what it was: a mistyped address says nothing of any server."""
    before = make_run(tmp_path, echo_profile)
    target = Target(base_urls=("http://127.0.0.1:9",))

    with pytest.raises(InfrastructureError, match=r"at http://127\.0\.0\.1:9, given by --base-url: start it"):
        run.run(Request(profile=echo_profile, target=target, runs=tmp_path), quiet())
    assert before.path == record.find(tmp_path, "latest").path
    assert 1 == len(record.runs(tmp_path))


def test_a_run_is_not_gone_on_with_where_nobody_answers(echo_profile: Profile, tmp_path: Path) -> None:
    folder = make_run(tmp_path, echo_profile, state="interrupted")
    before = folder.run_json.read_bytes()

    with pytest.raises(InfrastructureError, match="given by --base-url"):
        run.resume(folder, Target(base_urls=("http://127.0.0.1:9",)), None, quiet())
    assert before == folder.run_json.read_bytes()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target(control_url="http://h:1", control_model=Path("m")), "not both"),
        (Target(control_model=Path("nowhere.gguf")), "name one with --control-model"),
        (Target(control_url="localhost"), "--control-url is 'localhost'"),
        (Target(base_urls=("http://h:1", "h:2")), "--base-url is 'h:2'"),
    ],
)
def test_a_target_that_cannot_be_is_named(echo_profile: Profile, target: Target, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        target.model_file(echo_profile)
