"""A server in a process of its own, and what the system says of that process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.load.client import Address


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens and, if it is our own, its process."""

    address: Address
    pid: int


@contextmanager
def own_server(model: Path) -> Iterator[Server]:
    """A server on a free port, with one thread for the model."""
    words = ["serve", str(model), "--port", "0", "--threads", "1", "--max-sequences", "16"]
    process = subprocess.Popen([sys.executable, "-m", "engine", *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"at http://(\S+):(\d+)/v1", line):
                break
        else:
            raise EngineError(f"the server did not start: {said.strip()}")
        yield Server(Address(found[1], int(found[2])), process.pid)
    finally:
        process.terminate()
        process.communicate()


def memory_mib(pid: int) -> float | None:
    """Anonymous memory of a process, swapped or not: what it really holds, in MiB; None when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return (
        sum(int(size) for size in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB", status, re.MULTILINE)) / 1024
    )


def cpu_s(pid: int) -> float:
    """Processor seconds a process has used in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
