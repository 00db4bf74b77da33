"""Drives the equivalence gate: a process of its own runs the cases, every result goes into the history.

A crash of that process is the engine's and ends the case at hand; the rest goes on in a new one.
Imports no engine: the record can be judged where none is installed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from gates.equivalence.plan import Case, EquivalencePlan
from gates.errors import CheckError, GivenUp
from gates.harness import provenance
from gates.harness.rig import STUCK, Rig

MODEL = provenance.ROOT / "fixtures" / "tiny" / "sparkgate-tiny.gguf"
COMMAND = (sys.executable, "-m", "gates.equivalence.bench", str(MODEL))
LOG = "bench.log"
OURS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)  # what a host ends a process with, memory short or not


def drive(plan: EquivalencePlan, rig: Rig, command: Sequence[str] = COMMAND) -> None:
    """Run every case, also behind one that ends the process."""
    rig.progress.cells(plan.cells)
    left = list(plan.every)
    while left:
        done = _run(left, plan, rig, command)
        left = left[done:]


def _run(cases: Sequence[Case], plan: EquivalencePlan, rig: Rig, command: Sequence[str]) -> int:
    """One process over some cases; how many of them have a result."""
    wanted = {"sizes": asdict(plan.sizes), "cases": [asdict(case) for case in cases]}
    log, done, op = rig.history.path.parent / LOG, 0, None
    with _process(command, log) as child:
        assert child.stdin is not None
        child.stdin.write(json.dumps(wanted))
        child.stdin.close()
        for told in _lines(child, rig):
            if "begin" in told:
                case = cases[done]
                rig.progress.cell(case.id)
                op = rig.history.invoke(
                    case.what, subject=case.subject, case=case.name, values=dict(case.values)
                )
            elif op is not None:
                _end(rig, op, cases[done], told)
                done, op = done + 1, None
        code = child.wait()
    if op is not None:
        ours = -code in OURS
        message = f"the process ended by {_ended(code)} during {cases[done].id}"
        _end(rig, op, cases[done], {"kind": "info" if ours else "fail", "error": message})
        done += 1
    elif code:
        raise CheckError(
            f"the bench ended with {_ended(code)} between two cases: {_tail(log)}; {log} has the rest"
        )
    elif not done:
        raise CheckError(f"the bench ended as if it were done and told no result; {log} has its last words")
    return done


def _end(rig: Rig, op: int, case: Case, told: Mapping[str, Any]) -> None:
    fields = {name: value for name, value in told.items() if name not in ("end", "kind")}
    end = {"ok": rig.history.ok, "fail": rig.history.fail, "info": rig.history.unknown}[told["kind"]]
    end(op, case.what, **fields)


def _lines(child: subprocess.Popen[str], rig: Rig) -> Iterator[Mapping[str, Any]]:
    """What the process tells; GivenUp, noted in the history, when the gate is far over its budget."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    assert child.stdout is not None
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=min(60.0, max(0.0, rig.stop_at_s - time.monotonic())))
        except queue.Empty:
            if time.monotonic() < rig.stop_at_s:
                continue
            message = "the gate had used up many times its budget"
            rig.history.note(STUCK, message=message)
            raise GivenUp(message) from None
        if line is None:
            return
        yield json.loads(line)


def _read(source: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in source:
        lines.put(line)
    lines.put(None)


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A child in a group of its own that is gone afterwards; what it says on its error output is kept."""
    paths = [str(provenance.ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with log.open("a", encoding="utf-8") as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=env,
            start_new_session=True,
        )
        with child:
            try:
                yield child
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _tail(log: Path) -> str:
    """The last line that was written to a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else "without a word"
