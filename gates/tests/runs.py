"""Whole runs of the echo gate against the fake server, for the test files."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from gates import run
from gates.errors import ExitCode
from gates.harness import record
from gates.harness.record import RunFolder
from gates.profile import Profile
from gates.run import Request
from gates.target import Target
from gates.tests.conftest import fake_command
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


def quiet() -> Console:
    return Console(file=io.StringIO())


def verdict_of(folder: RunFolder) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(folder.verdict_json.read_bytes())
    return content


def killed(folder: RunFolder) -> RunFolder:
    """The folder as a kill in the middle of the gate leaves it."""
    folder.write_run(folder.read_run() | {"state": "running", "leftover": None})
    path = folder.history("echo")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:5], lines[5][:20]]))
    folder.verdict_json.unlink()
    return folder


@contextmanager
def running() -> Iterator[str]:
    """The address of a fake server in a thread of this process."""
    with FakeServer(0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
