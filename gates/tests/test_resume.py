"""Tests of going on with a run that was stopped or killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gates import registry, run
from gates.errors import CheckError, ExitCode, UsageError
from gates.harness import history
from gates.profile import Profile
from gates.target import Target
from gates.tests.conftest import ECHO, fake_command
from gates.tests.runs import do, killed, quiet, verdict_of


def test_a_killed_run_is_gone_on_with_and_passes(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    target = Target(model=model_file, server=fake_command())
    code = run.resume(killed(folder), target, None, quiet())

    assert ExitCode.PASS == code
    assert ("finished", 1) == (folder.read_run()["state"], len(folder.read_run()["resumed_utc"]))
    assert 4 == verdict_of(folder)["gates"][0]["operations"]["asked"]
    assert 1 == len(list(folder.history("echo").parent.glob("history.*s.jsonl")))


def test_a_gate_that_was_finished_is_not_asked_again(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    folder.write_run(folder.read_run() | {"state": "interrupted"})
    before = folder.history("echo").read_bytes()
    run.resume(folder, Target(model=model_file, server=fake_command("refuses")), None, quiet())

    assert before == folder.history("echo").read_bytes()
    assert "pass" == verdict_of(folder)["verdict"]


def test_a_gate_that_asks_by_item_goes_on_behind_its_record(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "GATES", (replace(ECHO, by_item=True),))
    _, folder, _ = do(echo_profile, model_file)
    before = history.read(killed(folder).history("echo"))
    run.resume(folder, Target(model=model_file, server=fake_command()), None, quiet())
    after = history.read(folder.history("echo"))

    assert before == after[: len(before)]
    assert after[len(before)].t_s >= before[-1].t_s
    assert 1 + max(event.op for event in before) == min(e.op for e in after[len(before) :] if e.op >= 0)
    assert "pass" == verdict_of(folder)["verdict"]


def test_a_run_is_not_gone_on_with_on_a_server_of_another_model(
    echo_profile: Profile, model_file: Path
) -> None:
    _, folder, _ = do(echo_profile, model_file)
    folder.write_run(folder.read_run() | {"served_models": ["another"]})

    with pytest.raises(UsageError, match=r"begun on a server of \['another'\], this one serves \['fake'\]"):
        run.resume(killed(folder), Target(model=model_file, server=fake_command()), None, quiet())


@pytest.mark.parametrize("name", ["history", "items"])
def test_a_run_with_a_damaged_record_is_not_gone_on_with_and_nothing_is_written(
    echo_profile: Profile, model_file: Path, name: str
) -> None:
    _, folder, _ = do(echo_profile, model_file)
    killed(folder)
    path = folder.history("echo").with_name(f"{name}.jsonl")
    path.write_bytes(b"half a line\n" + (path.read_bytes() if path.exists() else b""))
    before = {found: found.read_bytes() for found in folder.path.rglob("*") if found.is_file()}

    with pytest.raises(CheckError, match=rf"{name}.jsonl, line 1"):
        run.resume(folder, Target(model=model_file, server=fake_command()), None, quiet())
    assert before == {found: found.read_bytes() for found in folder.path.rglob("*") if found.is_file()}


@pytest.mark.parametrize("field", ["part", "control", "resumed_utc"])
def test_a_run_whose_record_lacks_what_going_on_needs_is_refused_by_its_name(
    echo_profile: Profile, model_file: Path, field: str
) -> None:
    _, folder, _ = do(echo_profile, model_file)
    rest = {name: value for name, value in killed(folder).read_run().items() if name != field}
    folder.write_run({name: value for name, value in rest.items() if name != "schema"})

    with pytest.raises(UsageError, match=f"its run.json lacks {field}; begin a new run"):
        run.resume(folder, Target(model=model_file, server=fake_command()), None, quiet())


def test_a_finished_run_has_nothing_to_go_on_with(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)

    with pytest.raises(UsageError, match="nothing to go on with"):
        run.resume(folder, Target(model=model_file, server=fake_command()), None, quiet())


def test_a_run_is_not_gone_on_with_on_another_model(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    model_file.write_bytes(b"another model")

    with pytest.raises(UsageError, match="its model was"):
        run.resume(killed(folder), Target(model=model_file, server=fake_command()), None, quiet())


def test_a_run_that_goes_on_is_left_alone(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    killed(folder)

    with folder.held(), pytest.raises(UsageError, match="is going on in another process: wait for its end"):
        run.resume(folder, Target(model=model_file, server=fake_command()), None, quiet())
