"""One run from start to exit code: folder, server, pytest with the plugin, judgement, files, last line.

Knows the order of things and which failure ends with which exit code; the parts live in their own modules.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from gates import conduct, outcome
from gates.conduct import Drive
from gates.errors import ExitCode, InfrastructureError, UsageError
from gates.harness import baseline, launch, probe, provenance, record
from gates.harness.client import Client
from gates.harness.launch import Attached, Command, Launched, Server
from gates.harness.progress import Board
from gates.harness.record import RunFolder, State
from gates.harness.reply import ClientError
from gates.harness.verdict import GateVerdict, Verdict
from gates.plugin import GatePlugin
from gates.profile import Profile, nearest
from gates.registry import GateSpec

EMBEDDED = provenance.ROOT / "fixtures" / "tiny" / "sparkgate-tiny.gguf"
RUNS = provenance.ROOT / "reports" / "runs"


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked to run; `base_url` means a server that already runs."""

    profile: Profile
    only: tuple[str, ...] = ()
    model: Path | None = None
    base_url: str | None = None
    server: Command | None = None
    seed: int | None = None
    runs: Path = RUNS
    data: Path | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A request that can be done: the gates it takes, the model it serves, the folder it fills."""

    request: Request
    gates: list[GateSpec]
    model: Path | None
    folder: RunFolder


def chosen(request: Request) -> list[GateSpec]:
    """The gates that the request takes, in order; UsageError when the selection is not allowed."""
    gates = request.profile.gates
    known = [gate.name for gate in gates]
    for name in request.only:
        if name not in known:
            raise UsageError(
                f"--only {name}: profile '{request.profile.name}' has no such gate{nearest(name, known)}; "
                f"it runs {', '.join(known)}"
            )
    if request.only and not request.profile.table("run").switch("selection"):
        raise UsageError(f"profile '{request.profile.name}' leaves nothing out: run it without --only")
    return [gate for gate in gates if not request.only or gate.name in request.only]


def model_path(request: Request) -> Path | None:
    """The model file to serve, or None for a server that already runs; UsageError when it is not there."""
    if request.base_url is not None:
        if request.model or request.server:
            raise UsageError("--base-url names a server that already runs: leave out --model and --server")
        _check_address(request.base_url)
        return None
    if request.model is None and request.profile.table("run").text("model") == "given":
        raise UsageError(
            f"profile '{request.profile.name}' judges a model that you name: add --model PATH or --base-url"
        )
    path = request.model or EMBEDDED
    if not path.is_file():
        raise UsageError(f"there is no model file at {path}; name one with --model PATH")
    return path


def _check_address(base_url: str) -> None:
    """UsageError for an address that no server can have, before a run folder is made for it."""
    try:
        parts = urlsplit(base_url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port or a host in brackets that is none
        whole = False
    if not whole:
        raise UsageError(f"--base-url is '{base_url}'; write http://HOST:PORT or https://HOST")


def run(request: Request, console: Console) -> ExitCode:
    """Do the whole run and print its last line; UsageError before anything was started."""
    gates, model = chosen(request), model_path(request)
    tree = provenance.checkout()
    folder = record.create(request.runs, profile=request.profile.name, commit=tree.short)
    started = time.monotonic()
    job = Job(request, gates, model, folder)
    run_record = _first_record(job, tree)
    folder.write_run(run_record)
    baseline.adopt(folder, run_record["model"], request.profile.name)
    try:
        with _signals_interrupt(), Board(console) as board:
            _drive_all(job, board, run_record)
    except KeyboardInterrupt:
        run_record |= {"state": State.INTERRUPTED}
    except InfrastructureError as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        run_record |= {"state": State.INFRASTRUCTURE, "error": str(error).partition("\n")[0]}
    run_record |= {"seconds": round(time.monotonic() - started, 3), "finished_utc": _now()}
    folder.write_run(run_record)
    return _finish(request, folder, run_record, console)


def _first_record(job: Job, tree: provenance.Tree) -> dict[str, Any]:
    request, profile = job.request, job.request.profile
    return {
        "state": State.RUNNING,
        "profile": profile.name,
        "profile_sha256": profile.sha256,
        "settings": {name: dict(table) for name, table in profile.tables.items()},
        "chosen": [gate.name for gate in job.gates],
        "seed": profile.seed if request.seed is None else request.seed,
        "seed_of_profile": request.seed in (None, profile.seed),
        "own_server": request.base_url is None and request.server is None,
        "started_utc": _now(),
        "tree": provenance.tree_record(tree),
        "model": provenance.model_record(job.model) if job.model else None,
        "server": {"launched": request.base_url is None, "command": _public_command(request)},
        "host": dict(probe.host()),
        "leftover": None,
    }


def _drive_all(job: Job, board: Board, found: dict[str, Any]) -> None:
    """Start the server, drive every gate through pytest, end the server; adds to the record."""
    request, folder = job.request, job.folder
    counts = f"profile {request.profile.name}, {len(job.gates)} gate(s)"
    first = "looking for the server" if request.base_url else "starting the server"
    board.say(f"run {folder.path.name}: {counts}, {first}")
    with _server(job) as server:
        found["served_models"] = _loaded_models(server, request.api_key)
        drive = Drive(request.profile, folder, server, found["seed"], request.data, request.api_key)
        try:
            found["state"], found["error"] = _pytest(drive, job.gates, board)
        finally:
            found["leftover"] = list(server.stop())


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

    def verdict_of(spec: GateSpec) -> GateVerdict:
        if spec.name not in known:
            minutes = [drive.profile.table(gate.name).number("budget_minutes") for gate in gates]
            place = gates.index(spec)
            board.gate(spec.title, minutes=minutes[place], later_minutes=sum(minutes[place + 1 :]))
            conduct.drive_gate(drive, spec, board)
            settings = drive.profile.table(spec.name)
            known[spec.name] = conduct.judge_gate(drive.folder, spec, settings)
            board.gate_done(known[spec.name])
        return known[spec.name]

    return verdict_of


@contextmanager
def _server(job: Job) -> Iterator[Server]:
    request = job.request
    if request.base_url:
        server: Server = Attached(request.base_url)
        if not server.alive():
            raise InfrastructureError(
                "no server answers at the address given by --base-url: start it, or mend host and port"
            )
        yield server
        return
    settings = request.profile.table("server")
    port = launch.free_port()
    words = (request.server or launch.engine_command()).filled(
        model=job.model, port=port, context_tokens=settings.count("context_tokens")
    )
    with Launched.start(
        words,
        port=port,
        log=job.folder.server_log,
        start_s=settings.number("start_seconds"),
        stop_s=settings.number("stop_seconds"),
        env=_server_environment(),
    ) as launched:
        yield launched


def _server_environment() -> Mapping[str, str]:
    """The caller's environment, with the checkout importable and output not held back."""
    paths = [str(provenance.ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONUNBUFFERED": "1"}


def _loaded_models(server: Server, api_key: str | None) -> list[str]:
    with Client(server.base_url, api_key=api_key) as client:
        try:
            return [model.id for model in client.models()]
        except ClientError:
            return []


def _public_command(request: Request) -> list[str]:
    """The server's command with its places still open, so that no path of this host gets into the record."""
    if request.base_url:
        return []
    words = (request.server or launch.engine_command()).words
    return [Path(words[0]).name, *words[1:]]


def _test_file(gate: GateSpec) -> str:
    name = f"{gate.room}.test_{gate.name}"
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the room itself is not there
        found = None
    if found is None or found.origin is None:
        raise InfrastructureError(f"gate '{gate.name}' has no module {name}: the installation is not whole")
    return found.origin


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """TERM and HUP end a run as Ctrl-C does: server ended, record kept."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {which: signal.signal(which, interrupt) for which in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _finish(request: Request, folder: RunFolder, run_record: Mapping[str, Any], console: Console) -> ExitCode:
    verdict = conduct.judge_run(folder, request.profile)
    outcome.show(folder, outcome.write(folder, verdict), console)
    if run_record["state"] == State.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if run_record["state"] == State.INFRASTRUCTURE and verdict.verdict is not Verdict.FAIL:
        return ExitCode.INFRASTRUCTURE
    return outcome.exit_code(verdict.verdict)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
