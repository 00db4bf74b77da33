"""What the host and the server's processes say of themselves: memory, processors, system.

Memory is anonymous plus swapped bytes: plain resident size hides what was swapped out and counts the mapped
model file. Pages that processes of a family share count once where the system says so (`smaps_rollup`).
Knows nothing of gates.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a process and its children, in bytes."""

    anon_bytes: int
    swap_bytes: int

    @property
    def held_bytes(self) -> int:
        """What the processes really hold: anonymous pages, in memory or swapped."""
        return self.anon_bytes + self.swap_bytes


def memory(pid: int, *, proc: Path = Path("/proc")) -> Memory | None:
    """Anonymous and swapped pages of a process and its children; None where the system does not tell."""
    try:
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return None
    found = [held for member in family if (held := _held(proc / str(member)))]
    if not found:
        return None
    return Memory(sum(held.anon_bytes for held in found), sum(held.swap_bytes for held in found))


def busy_elsewhere_s(pid: int, *, own_s: float) -> float | None:
    """Processor seconds since the start of the host that went to anything but a process family and ourselves.

    `own_s` is what this process has used.  Time that a hypervisor took away counts as gone elsewhere.
    None where the system does not tell.
    """
    try:
        root = psutil.Process(pid)
        family = [root.cpu_times(), *(child.cpu_times() for child in root.children(recursive=True))]
        whole = psutil.cpu_times()
    except psutil.Error:
        return None
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    used = sum(getattr(whole, name, 0.0) for name in names)
    return float(used - own_s - sum(member.user + member.system for member in family))


def listener(host: str, port: int) -> int | None:
    """The process that listens on this port of this host; None elsewhere or where the system hides it."""
    if host not in LOOPBACK:
        return None
    try:
        found = psutil.net_connections("tcp")
    except psutil.Error:
        return None
    ours = [at for at in found if at.status == psutil.CONN_LISTEN and getattr(at.laddr, "port", None) == port]
    pids = {at.pid for at in ours}
    return next((pid for pid in sorted(filter(None, pids)) if pid != os.getpid()), None)


def cpus() -> int:
    """Processors that this process may use, which can be fewer than the host has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host() -> Mapping[str, Any]:
    """The host's record for `run.json`: nothing that names a person, an address or a path."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cpus": cpus(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _held(process: Path) -> Memory | None:
    """What one process holds: each page in its share, or where the kernel does not say that, in whole."""
    for file, anon, swap in (("smaps_rollup", "Pss_Anon:", "SwapPss:"), ("status", "RssAnon:", "VmSwap:")):
        try:
            text = (process / file).read_text()
        except OSError:  # it ended between the listing and the reading, or belongs to somebody else
            continue
        if anon in text:
            return Memory(_kib(text, anon), _kib(text, swap))
    return None


def _kib(text: str, name: str) -> int:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
