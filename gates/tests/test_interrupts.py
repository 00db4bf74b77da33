"""An interrupt is never lost, whatever it falls into; each test sends real signals to this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gates.errors import ExitCode
from gates.harness import interrupts, record
from gates.harness.interrupts import Interrupts
from gates.tests.runs import verdict_of


class Finaliser:
    """Something in whose end a signal falls, where Python drops what is raised."""

    def __init__(self, which: signal.Signals) -> None:
        self._which = which

    def __del__(self) -> None:
        os.kill(os.getpid(), self._which)
        for _ in range(1000):  # the handler runs between two of these
            pass


@pytest.fixture(autouse=True)
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What Python dropped, which it else says on the error output; and no waiting."""
    seen: list[object] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    monkeypatch.setattr(sys, "unraisablehook", lambda told: seen.append(told.exc_type))
    monkeypatch.setattr(interrupts, "AGAIN_S", 0.05)
    yield seen
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_one_that_falls_into_a_finaliser_comes_again(which: signal.Signals, dropped: list[object]) -> None:
    def lose_and_wait() -> None:
        Finaliser(which)
        time.sleep(30)

    with Interrupts() as coming, pytest.raises(KeyboardInterrupt), coming.insistent():
        lose_and_wait()

    assert [KeyboardInterrupt] == dropped


def test_one_that_was_lost_before_is_raised_at_the_door(dropped: list[object]) -> None:
    with Interrupts() as coming:
        Finaliser(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), coming.insistent():
            time.sleep(30)

    assert [KeyboardInterrupt] == dropped


def test_one_that_was_heard_does_not_come_again() -> None:
    with Interrupts() as coming:
        with pytest.raises(KeyboardInterrupt), coming.insistent():
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.2)  # as long as a server takes to end


def test_what_was_to_be_ignored_stays_ignored_and_handlers_come_back() -> None:
    def mine(*_: object) -> None:
        return None

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGTERM, mine)
    try:
        with Interrupts():
            signal.raise_signal(signal.SIGHUP)
        after = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])

    assert (signal.SIG_IGN, mine) == after


INTERRUPTED = """
import signal
import sys
from pathlib import Path
from rich.console import Console
from gates import registry, run
from gates.profile import checked
from gates.target import Target
from gates.tests.conftest import ECHO, echo_tables, fake_command
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
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
        rest = process.stdout.read()
    folder = record.find(tmp_path / "runs", "latest")

    assert ExitCode.INTERRUPTED == process.returncode
    assert rest.rstrip().splitlines()[-1].startswith("UNKNOWN")
    assert ("interrupted", []) == (folder.read_run()["state"], folder.read_run()["leftover"])
    assert "the run was interrupted" == verdict_of(folder)["reasons"][0]
    assert "the run was interrupted before the gate had finished" in verdict_of(folder)["reasons"][1]
