"""Starts the engine with the embedded model for live tests, with a small budget and maybe a fault in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gates.harness import launch
from gates.harness.launch import Launched
from gates.target import EMBEDDED


@contextmanager
def small_engine(folder: Path, *words: str, fault: str = "") -> Iterator[Launched]:
    """The engine with a context of 8192 tokens, these words, and this fault of `engine/tests/seeded.py`."""
    port = launch.free_port()
    seeded = ("engine.tests.seeded", fault) if fault else ()
    serve = ("engine", "serve", "--model", str(EMBEDDED), "--port", str(port), "--context", "8192")
    command = [sys.executable, "-m", *seeded, *serve, *words]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    log = folder / "server.log"
    with Launched.start(command, port=port, log=log, start_s=120, stop_s=10, env=env) as server:
        yield server
