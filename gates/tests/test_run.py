"""Tests of whole runs against the fake server: verdict, exit code, record and what is left behind."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gates import conduct, judge, registry, run
from gates.conduct import Drive
from gates.errors import ExitCode, UsageError
from gates.harness import history, launch, record
from gates.harness.progress import Board
from gates.harness.record import RunFolder
from gates.profile import Profile, checked
from gates.run import Request
from gates.target import Target
from gates.tests.conftest import ECHO, echo_tables, fake_command
from gates.tests.fake_server import FakeServer


def do(
    profile: Profile, model: Path, fault: str = "none", *, after: int = 0
) -> tuple[ExitCode, RunFolder, str]:
    """A run against the fake server; its exit code, its folder, and what it printed."""
    runs = model.parent / "runs"
    target = Target(model=model, server=fake_command(fault, after=after))
    request = Request(profile=profile, target=target, runs=runs)
    console = Console(file=io.StringIO(), width=200)
    code = run.run(request, console)
    assert isinstance(console.file, io.StringIO)
    return code, record.find(runs, "latest"), console.file.getvalue()


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

    assert ExitCode.PASS == run.run(request, quiet())
    assert [record.find(runs, "latest").path] == [folder.path for folder in made]


def quiet() -> Console:
    return Console(file=io.StringIO())


def verdict_of(folder: RunFolder) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(folder.verdict_json.read_bytes())
    return content


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
    assert "notice" in said


def test_progress_names_gate_and_cell_and_the_verdict_so_far(echo_profile: Profile, model_file: Path) -> None:
    _, _, said = do(echo_profile, model_file)

    assert "Echo: the last word comes back - budget 1 min" in said
    assert "cell 1 of 4: word" in said
    assert "Echo: the last word comes back - PASS - 1 of 1 claims hold" in said


def test_a_failed_run_prints_how_to_ask_the_same_again(echo_profile: Profile, model_file: Path) -> None:
    _, folder, said = do(echo_profile, model_file, "refuses")
    command = "python -m gates run --profile echo --seed 7 --only echo --model PATH"

    assert command in said
    assert command in folder.verdict_md.read_text()


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
    with FakeServer(0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        request = Request(profile=echo_profile, target=Target(base_urls=(address,)), runs=tmp_path)
        code = run.run(request, quiet())
        server.shutdown()
        thread.join()
    folder = record.find(tmp_path, "latest")

    assert ExitCode.PASS == code
    assert address not in folder.run_json.read_text()
    assert [("run.budget_ratio", "pass")] == [
        (measure["id"], measure["verdict"]) for measure in verdict_of(folder)["gates"][1]["measures"]
    ]


def test_what_the_server_counts_is_kept_with_each_gate(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)

    assert "asked_total 4\n" == folder.metrics("echo").read_text()


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


def test_a_bug_in_a_drive_is_unknown_and_kept_in_the_history(
    echo_profile: Profile, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("gates.tests.echo.drive.drive", broken)
    code, folder, _ = do(echo_profile, model_file)

    assert ExitCode.UNKNOWN == code
    assert "the harness broke while it drove the gate (KeyError: 'lost')" in verdict_of(folder)["reasons"][0]


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


def test_an_address_where_nobody_answers_is_infrastructure(echo_profile: Profile, tmp_path: Path) -> None:
    target = Target(base_urls=("http://127.0.0.1:9",))
    request = Request(profile=echo_profile, target=target, runs=tmp_path)

    assert ExitCode.INFRASTRUCTURE == run.run(request, quiet())


@pytest.mark.parametrize(("fault", "after"), [("none", 0), ("refuses", 2), ("dies", 1)])
def test_a_run_judged_again_gives_the_recorded_verdict(
    echo_profile: Profile, model_file: Path, fault: str, after: int
) -> None:
    _, folder, _ = do(echo_profile, model_file, fault, after=after)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}

    assert () == judge.judge(folder).differences
    assert "the same verdict as recorded" == judge.write(folder, judge.judge(folder))
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_a_record_changed_afterwards_is_seen(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    path = folder.history("echo")
    path.write_bytes(path.read_bytes().replace(b"You said word", b"You said bird", 1))
    again = judge.judge(folder)

    assert "verdict was pass, is fail" == again.differences[0]
    assert "NOT the recorded verdict" in judge.write(folder, again)
    assert "pass" == verdict_of(folder)["verdict"]
    assert (folder.path / "verdict.rejudged.json").is_file()


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


def killed(folder: RunFolder) -> RunFolder:
    """The folder as a kill in the middle of the gate leaves it."""
    folder.write_run(folder.read_run() | {"state": "running", "leftover": None})
    path = folder.history("echo")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:5], lines[5][:20]]))
    folder.verdict_json.unlink()
    return folder


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


def test_a_finished_run_has_nothing_to_go_on_with(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)

    with pytest.raises(UsageError, match="nothing to go on with"):
        run.resume(folder, Target(model=model_file, server=fake_command()), None, quiet())


def test_a_run_is_not_gone_on_with_on_another_model(echo_profile: Profile, model_file: Path) -> None:
    _, folder, _ = do(echo_profile, model_file)
    model_file.write_bytes(b"another model")

    with pytest.raises(UsageError, match="its model was"):
        run.resume(killed(folder), Target(model=model_file, server=fake_command()), None, quiet())


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


INTERRUPTED = """
import sys
from pathlib import Path
from rich.console import Console
from gates import registry, run
from gates.profile import checked
from gates.target import Target
from gates.tests.conftest import ECHO, echo_tables, fake_command
registry.GATES = (ECHO,)
tables = echo_tables()
tables["server"]["request_seconds"] = 50
profile = checked("echo", tables, "")
where = Path(sys.argv[1])
server = fake_command("hangs", after=1)
target = Target(model=where / "m", server=server)
request = run.Request(profile=profile, target=target, runs=where / "runs")
sys.exit(run.run(request, Console()))
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_server_and_keeps_the_record(tmp_path: Path, which: signal.Signals) -> None:
    (tmp_path / "m").write_bytes(b"model")
    words = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "cell 1 of 4" in line:
                break
        process.send_signal(which)
        # Python drops an interrupt that falls into a finaliser; whoever pressed Ctrl-C presses it again.
        again = threading.Timer(20, process.send_signal, (which,))
        again.start()
        rest = process.stdout.read()
        again.cancel()
    folder = record.find(tmp_path / "runs", "latest")

    assert ExitCode.INTERRUPTED == process.returncode
    assert rest.rstrip().splitlines()[-1].startswith("UNKNOWN")
    assert ("interrupted", []) == (folder.read_run()["state"], folder.read_run()["leftover"])
    assert "the run was interrupted" == verdict_of(folder)["reasons"][0]
    assert "the run was interrupted before the gate had finished" in verdict_of(folder)["reasons"][1]
