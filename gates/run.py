"""One run from start to exit code: folder, server, pytest with the plugin, judgement, files, last line.

Knows the order of things and which failure ends with which exit code; the parts live in their own modules.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gates import conduct, outcome, report
from gates.conduct import Drive
from gates.errors import ExitCode, InfrastructureError, UsageError
from gates.harness import baseline, history, pace, probe, provenance, record, room
from gates.harness.interrupts import Interrupts
from gates.harness.progress import Board
from gates.harness.record import RunFolder, State
from gates.harness.verdict import GateVerdict, Verdict
from gates.plugin import GatePlugin
from gates.profile import Profile, nearest, recorded
from gates.spec import GateSpec
from gates.target import EMBEDDED_ENGINE, Target, further, served_models, serving

RUNS = provenance.ROOT / "reports" / "runs"


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked to run."""

    profile: Profile
    target: Target = EMBEDDED_ENGINE
    only: tuple[str, ...] = ()
    seed: int | None = None
    part: tuple[int, int] = (1, 1)  # which part of the items, and of how many
    runs: Path = RUNS
    data: Path | None = None
    html: bool = False  # make the HTML report too


@dataclass(frozen=True, slots=True)
class Job:
    """Something that can be done: gates to drive, servers to drive them on, a folder to fill."""

    profile: Profile
    gates: list[GateSpec]
    target: Target
    folder: RunFolder
    data: Path | None
    html: bool = False  # the HTML report is made afterwards


def chosen(request: Request) -> list[GateSpec]:
    """The gates that the request takes, in order; UsageError when the selection is not allowed."""
    known = [gate.name for gate in request.profile.every_gate]
    for name in request.only:
        if name not in known:
            raise UsageError(
                f"--only {name}: profile '{request.profile.name}' has no such gate{nearest(name, known)}; "
                f"it can run {', '.join(known)}"
            )
    if request.only and not request.profile.table("run").switch("selection"):
        raise UsageError(f"profile '{request.profile.name}' leaves nothing out: run it without --only")
    gates = request.profile.gates
    if request.only:
        gates = [gate for gate in request.profile.every_gate if gate.name in request.only]
    whole = [gate.name for gate in gates if not gate.by_item]
    if request.part != (1, 1) and whole:
        raise UsageError(
            f"--part asks a part of the items, and there is none of {', '.join(whole)}: "
            "name other gates with --only"
        )
    return gates


def checked(request: Request) -> tuple[list[GateSpec], Path | None]:
    """The gates and the model of a run that can begin; UsageError or InfrastructureError for one that cannot.

    Nothing is printed, and of what is on record nothing changes.
    """
    gates, model = chosen(request), request.target.model_file(request.profile)
    record.check_place(request.runs)
    if model:
        baseline.check(model.name, request.profile.name)
    request.target.check_answers()
    return gates, model


def run(request: Request, console: Console) -> ExitCode:
    """Do the whole run and print its last line; errors as of `checked` come before there is a run folder."""
    gates, model = checked(request)
    tree = provenance.checkout()
    run_record = _first_record(request, gates, model, tree)
    folder = record.create(request.runs, profile=request.profile.name, commit=tree.short)
    job = Job(request.profile, gates, request.target, folder, request.data, request.html)
    folder.write_run(run_record)
    baseline.adopt(folder, run_record["model"], request.profile.name)
    code = _conduct(job, run_record, console)
    if request.html:  # the page is extra and moves no verdict
        report.show(folder, console, Console(stderr=True))
    else:
        outcome.last_line(folder.read_verdict(), console)
    return code


def resume(folder: RunFolder, target: Target, data: Path | None, console: Console) -> ExitCode:
    """Go on with a run that stopped before its end; UsageError unless it would go on with the same things.

    Gates that were finished keep their record; others go on from it, or are driven again.
    """
    run_record, name = folder.read_run(), folder.path.name
    if folder.going_on:
        raise UsageError(f"run {name} is going on in another process: wait for its end")
    if run_record["state"] == State.FINISHED:
        raise UsageError(f"run {name} is finished: there is nothing to go on with")
    absent = [field for field in ("part", "control", "resumed_utc") if field not in run_record]
    if absent:
        raise UsageError(
            f"run {name} cannot be gone on with: its run.json lacks {', '.join(absent)}; begin a new run"
        )
    settings = recorded(run_record, name)
    model = target.model_file(settings)
    target.check_answers()
    now = {
        "tree": provenance.tree_record(provenance.checkout()),
        "model": provenance.model_record(model) if model else None,
        "control": _control_record(target),
        "own_server": target.own,
    }
    for thing, found in now.items():
        if run_record[thing] != found:
            raise UsageError(
                f"run {name} cannot be gone on with: its {thing} was {run_record[thing]}, now it is {found};"
                " give the same, or begin a new run"
            )
    for spec in settings.every_gate:
        history.read(folder.history(spec.name))  # a damaged one stops here, before a server is started
        history.items(folder.items(spec.name))
    run_record["resumed_utc"] = [*run_record["resumed_utc"], _now()]
    run_record |= {"state": State.RUNNING, "error": ""}
    gates = [gate for gate in settings.every_gate if gate.name in run_record["chosen"]]
    code = _conduct(Job(settings, gates, target, folder, data), run_record, console)
    outcome.last_line(folder.read_verdict(), console)
    return code


def _conduct(job: Job, run_record: dict[str, Any], console: Console) -> ExitCode:
    """Hold the run folder, drive all gates, keep how that ended, judge, and show it."""
    with job.folder.held():
        _drive_and_record(job, run_record, console)
        return _finish(job, run_record, console)


def _drive_and_record(job: Job, run_record: dict[str, Any], console: Console) -> None:
    folder, started = job.folder, time.monotonic()
    before_s = sum(room.seconds(history.read(folder.history(gate.name))) for gate in job.gates)
    folder.write_run(run_record)
    try:
        with Interrupts() as interrupts, Board(console) as board:
            _drive_all(job, board, run_record, interrupts)
    except KeyboardInterrupt:
        run_record |= {"state": State.INTERRUPTED}
    except InfrastructureError as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        run_record |= {"state": State.INFRASTRUCTURE, "error": str(error).partition("\n")[0]}
    seconds = round(before_s + time.monotonic() - started, 3)
    run_record |= {"seconds": seconds, "finished_utc": _now()}
    folder.write_run(run_record)


def _first_record(
    request: Request, gates: list[GateSpec], model: Path | None, tree: provenance.Tree
) -> dict[str, Any]:
    profile, target = request.profile, request.target
    return {
        "state": State.RUNNING,
        "profile": profile.name,
        "profile_sha256": profile.sha256,
        "settings": {name: dict(table) for name, table in profile.tables.items()},
        "chosen": [gate.name for gate in gates],
        "seed": profile.seed if request.seed is None else request.seed,
        "part": list(request.part),
        "seed_of_profile": request.seed in (None, profile.seed),
        "own_server": target.own,
        "started_utc": _now(),
        "resumed_utc": [],
        "tree": provenance.tree_record(tree),
        "model": provenance.model_record(model) if model else None,
        "control": _control_record(target),
        "server": {
            "launched": target.launched,
            "command": target.public_command(),
            "endpoints": max(1, len(target.base_urls)),
        },
        "host": dict(probe.host()),
        "leftover": None,
    }


def _control_record(target: Target) -> dict[str, Any] | None:
    """What the control is: a model of known digest, or a server that only its address tells; None: none."""
    if target.control_model:
        return provenance.model_record(target.control_model)
    return {"launched": False} if target.control_url else None


def _drive_all(job: Job, board: Board, found: dict[str, Any], interrupts: Interrupts) -> None:
    """Start the server, drive every gate through pytest, end the server; adds to the record."""
    counts = f"profile {job.profile.name}, {len(job.gates)} gate(s)"
    first = "starting the server" if job.target.launched else "looking for the server"
    board.say(f"run {job.folder.path.name}: {counts}, {first}")
    with serving(job.target, job.profile, job.folder) as servers:
        named = served_models(servers.judged[0], job.target.api_key)
        if named != found.setdefault("served_models", named):
            raise UsageError(
                f"the run was begun on a server of {found['served_models']}, this one serves {named};"
                " give the same, or begin a new run"
            )
        drive = Drive(
            job.profile,
            job.folder,
            servers.judged[0],
            found["seed"],
            job.data,
            job.target.api_key,
            shards=servers.judged[1:],
            control=servers.control,
            part=(found["part"][0], found["part"][1]),
            further=partial(further, job.target, job.profile, job.folder) if job.target.own else None,
            own=job.target.own,
        )
        try:
            with interrupts.insistent():
                found["state"], found["error"] = _pytest(drive, job.gates, board)
        finally:
            found["leftover"] = servers.stop()


def _pytest(drive: Drive, gates: list[GateSpec], board: Board) -> tuple[State, str]:
    """Run the rooms' tests; the state in which that leaves the run, and what broke if anything did."""
    plugin = GatePlugin(gates, _verdicts(drive, gates, board))
    files = [_test_file(gate) for gate in gates]
    root = str(provenance.ROOT)
    options = ["-c", os.devnull, "--rootdir", root, "--import-mode=importlib", "--disable-plugin-autoload"]
    quiet = ["-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no"]
    code = pytest.main([*options, *quiet, *files], plugins=[plugin])
    if code == pytest.ExitCode.INTERRUPTED and not plugin.errors:
        raise KeyboardInterrupt
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return State.FINISHED, ""
    return State.INFRASTRUCTURE, "; ".join(plugin.errors) or f"pytest ended with {code!r}"


def _verdicts(drive: Drive, gates: list[GateSpec], board: Board) -> Any:
    """A function that drives a gate when its first claim is asked for, and then only repeats its verdict."""
    known: dict[str, GateVerdict] = {}
    budgets = {gate.name: drive.profile.table(gate.name).number("budget_minutes") for gate in gates}
    last = pace.last_minutes(drive.folder.path.parent, drive.profile.name)
    expected = pace.expected_minutes(budgets, last)

    def verdict_of(spec: GateSpec) -> GateVerdict:
        if spec.name not in known:
            later = sum(expected[gate.name] for gate in gates[gates.index(spec) + 1 :])
            board.gate(
                spec.title,
                budget_minutes=budgets[spec.name],
                expected_minutes=expected[spec.name],
                later_minutes=later,
            )
            conduct.drive_gate(drive, spec, board)
            settings = drive.profile.table(spec.name)
            known[spec.name] = conduct.judge_gate(drive.folder, spec, settings)
            board.gate_done(known[spec.name])
        return known[spec.name]

    return verdict_of


def _test_file(gate: GateSpec) -> str:
    name = f"{gate.room}.test_{gate.name}"
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the room itself is not there
        found = None
    if found is None or found.origin is None:
        raise InfrastructureError(f"gate '{gate.name}' has no module {name}: the installation is not whole")
    return found.origin


def _finish(job: Job, run_record: Mapping[str, Any], console: Console) -> ExitCode:
    verdict = conduct.judge_run(job.folder, job.profile)
    outcome.show(job.folder, outcome.write(job.folder, verdict), console, page_follows=job.html)
    if run_record["state"] == State.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if run_record["state"] == State.INFRASTRUCTURE and verdict.verdict is not Verdict.FAIL:
        return ExitCode.INFRASTRUCTURE
    return outcome.exit_code(verdict.verdict)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
