"""The server under test: started as a process group of its own, or a running one that is only looked at.

Owns start, readiness, liveness and the end (TERM, then KILL, of the whole group) and proves afterwards that
no process and no port is left. Knows nothing of gates and of what the server is asked.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psutil

from gates.errors import LaunchError, UsageError
from gates.harness import probe
from gates.harness.client import Client

HOST = "127.0.0.1"
TAIL_BYTES = 16_384
POLL_S = 0.05
SETTLE_S = 1.0  # what a killed process may take to leave the table


class Server(Protocol):
    """What the harness needs of a server under test, launched or not."""

    base_url: str
    pid: int | None

    def alive(self) -> bool:
        """Whether the server still is there; a hanging server is there."""

    def stop(self) -> tuple[str, ...]:
        """End it and return what is left behind: processes and ports, in words."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server: words in which `{model}`, `{port}` and `{context}` are filled in."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, line: str) -> Command:
        """A command from one line in shell quoting; UsageError when it cannot be read or takes no port."""
        try:
            words = tuple(shlex.split(line))
        except ValueError as error:
            raise UsageError(
                f"the server command {line!r} is not in shell quoting ({error}): close every quote"
            ) from error
        if not any("{port}" in word for word in words):
            raise UsageError(
                f"the server command has no {{port}}: {line!r}; it must listen where the gates ask"
            )
        return cls(words)

    def filled(self, *, model: Path | None, port: int, context_tokens: int) -> list[str]:
        """The words with the places filled in."""
        places = {"{model}": str(model or ""), "{port}": str(port), "{context}": str(context_tokens)}
        return [_filled(word, places) for word in self.words]


def engine_command() -> Command:
    """The engine of this repository, under the Python that runs the gates."""
    words = ("-m", "engine", "serve", "--model", "{model}", "--port", "{port}", "--context", "{context}")
    return Command((sys.executable, *words))


class Attached:
    """A server that somebody else runs at `base_url`; never stopped by us."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        place = urlsplit(base_url)
        self.pid: int | None = probe.listener(place.hostname or "", place.port or 80)

    def alive(self) -> bool:
        """Whether something still listens there."""
        with Client(self.base_url) as client:
            return client.healthy() or client.listening()

    def stop(self) -> tuple[str, ...]:
        """Leave it running."""
        return ()


class Launched:
    """A server that we started; `with Launched.start(...) as server:` also ends it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path, stop_s: float) -> None:
        self.base_url = f"http://{HOST}:{port}"
        self.pid: int | None = process.pid
        self._process = process
        self._port = port
        self._log = log
        self._stop_s = stop_s
        self._left: tuple[str, ...] | None = None

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        port: int,
        log: Path,
        start_s: float,
        stop_s: float,
        env: Mapping[str, str],
    ) -> Launched:
        """Start the command and wait until `/health` answers 200; LaunchError if it ends or is too slow."""
        leash = [sys.executable, "-m", "gates.harness.leash", str(os.getpid()), *command]
        with log.open("ab") as out:
            process = subprocess.Popen(
                leash, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=dict(env)
            )
        server = cls(process, port, log, stop_s)
        try:
            server._wait_ready(start_s)
        except BaseException:  # also an interrupt while waiting: nothing may be left running
            server.stop()
            raise
        return server

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def log_tail(self) -> str:
        """The last 16 KiB of what it printed."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
            return log.read().decode("utf-8", "replace")

    def stop(self) -> tuple[str, ...]:
        """TERM, then KILL after the profile's time, of the whole group; again gives the same answer."""
        if self._left is None:
            family = self._family()
            self._signal(signal.SIGTERM)
            gone = _wait_all_gone(family, self._stop_s)
            if not gone or not self._ended(self._stop_s):
                self._signal(signal.SIGKILL)
            self._process.wait()
            self._left = self._leftovers(family)
        return self._left

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_ready(self, start_s: float) -> None:
        deadline = time.monotonic() + start_s
        with Client(self.base_url) as client:
            while not client.healthy(timeout_s=1.0):
                code = self._process.poll()
                if code is not None:
                    raise LaunchError(
                        f"the server ended with code {code} before it was healthy\n{self.log_tail()}"
                    )
                if time.monotonic() > deadline:
                    raise LaunchError(f"the server was not healthy within {start_s:g} s\n{self.log_tail()}")
                time.sleep(POLL_S)

    def _family(self) -> list[psutil.Process]:
        """The process, its children in any group, and everything else in its group."""
        found = {process.pid: process for process in _group(self._process.pid)}
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                found[child.pid] = child
        return list(found.values())

    def _signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, which)

    def _ended(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _leftovers(self, family: list[psutil.Process]) -> tuple[str, ...]:
        _wait_all_gone(family, SETTLE_S)
        left = [f"process {process.pid} ({_name(process)})" for process in family if _runs(process)]
        for process in family:  # named above as left behind, then ended: the next run starts clean
            with contextlib.suppress(psutil.Error):
                if _runs(process):
                    process.kill()
        if not port_free(self._port):
            left.append(f"port {self._port} still in use")
        return tuple(left)


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_free(port: int) -> bool:
    """Whether a new server could listen on this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _group(pgid: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == pgid:
                yield process


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return "gone"


def _wait_all_gone(family: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(_runs(process) for process in family):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
