"""What the host says of itself."""

from __future__ import annotations

import os
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


def test_a_living_process_holds_memory() -> None:
    held = probe.memory(os.getpid())

    assert held is None or held.held_bytes > 1 << 20
