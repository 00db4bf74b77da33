"""What the host says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from gates.harness import probe


class FakeProcess:
    """A process with one child; both have used processor time."""

    def __init__(self, pid: int) -> None:
        if pid != 7:
            raise psutil.NoSuchProcess(pid)

    def children(self, *, recursive: bool = False) -> list[FakeProcess]:
        """The same again, without children of its own."""
        return [FakeProcess(7)] if recursive else []

    def cpu_times(self) -> SimpleNamespace:
        """Five seconds in all."""
        return SimpleNamespace(user=4.0, system=1.0)


def test_time_elsewhere_is_the_hosts_less_the_family_and_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimpleNamespace(user=20.0, nice=1.0, system=5.0, idle=900.0, steal=4.0)
    monkeypatch.setattr(psutil, "Process", FakeProcess)
    monkeypatch.setattr(psutil, "cpu_times", lambda: whole)

    assert 30.0 - 10.0 - 2.0 == probe.busy_elsewhere_s(7, own_s=2.0)


def test_nobody_can_tell_for_a_process_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "Process", FakeProcess)

    assert probe.busy_elsewhere_s(8, own_s=0.0) is None


def test_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert (2, 2) == (probe.cpus(), probe.host()["cpus"])

    monkeypatch.delattr(os, "sched_getaffinity")
    assert 64 == probe.cpus()


def test_a_living_process_holds_memory() -> None:
    held = probe.memory(os.getpid())

    assert held is None or held.held_bytes > 1 << 20


def test_a_server_on_this_host_is_found_by_its_port_and_none_elsewhere() -> None:
    code = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); time.sleep(30)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as listening:
        assert listening.stdout is not None
        port = int(listening.stdout.readline())
        here, there = probe.listener("127.0.0.1", port), probe.listener("192.0.2.1", port)
        listening.kill()

    assert (listening.pid, None) == (here, there)
