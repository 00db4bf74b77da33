"""A server in a process of its own, and what the system says of that process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.errors import EngineError
from engine.load.client import Address


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens and, if it is our own, its process."""

    address: Address
    pid: int


@contextmanager
def own_server(model: Path, **environment: str) -> Iterator[Server]:
    """A server on a free port, with one thread for the model; `environment` is added to ours."""
    words = ["serve", str(model), "--port", "0", "--threads", "1", "--max-sequences", "16"]
    with own_process("-m", "engine", *words, **environment) as server:
        yield server


@contextmanager
def own_process(*words: str, **environment: str) -> Iterator[Server]:
    """A Python process that says where it listens."""
    with tempfile.TemporaryFile("w+") as log:  # a pipe nobody reads would stop the server when full
        process = subprocess.Popen([sys.executable, *words], stderr=log, env={**os.environ, **environment})
        try:
            yield Server(_address(process, log), process.pid)
        finally:
            process.terminate()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: IO[str]) -> Address:
    """Where it says that it listens; EngineError when it ends before."""
    while process.poll() is None:
        log.seek(0)
        if found := re.search(r"at http://(\S+):(\d+)/v1", log.read()):
            return Address(found[1], int(found[2]))
        time.sleep(0.05)
    log.seek(0)
    raise EngineError(f"the server did not start: {log.read().strip()}")


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
