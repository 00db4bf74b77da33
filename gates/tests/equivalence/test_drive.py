"""The drive of equivalence with small programs in place of the bench: results, crashes, and a hang."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import pytest

from gates.equivalence.drive import COMMAND, drive
from gates.equivalence.plan import Case, EquivalencePlan
from gates.errors import CheckError, GivenUp
from gates.harness import history
from gates.harness.client import Client
from gates.harness.history import Event, History
from gates.harness.rig import Rig
from gates.tests.driving import Counted
from gates.tests.equivalence.driving import SMALL

CASES = tuple(Case("pair", "cut", str(number), {"at": number}) for number in range(3))
HEAD = "import json, os, signal, sys, time\nwanted = json.load(sys.stdin)['cases']\n"
TELL = "def tell(**line): print(json.dumps(line), flush=True)\n"
GOOD = "for n, case in enumerate(wanted):\n    tell(begin=n)\n    tell(end=n, kind='ok', equal=True)\n"


def run(program: str, folder: Path, *, stop_in_s: float = math.inf) -> list[Event]:
    """What the history holds after a bench that is this program."""
    with History(folder / "history.jsonl") as record, Client("http://127.0.0.1:9") as client:
        until = time.monotonic() + stop_in_s
        rig = Rig(client, record, Counted(), lambda: True, data=None, context_tokens=1, stop_at_s=until)
        drive(EquivalencePlan(CASES, SMALL), rig, (sys.executable, "-c", HEAD + TELL + program))
    return history.read(folder / "history.jsonl")


def outcomes(events: list[Event]) -> list[tuple[str, str]]:
    return [(operation.get("case"), operation.outcome) for operation in history.operations(events)]


def test_every_case_has_its_result(tmp_path: Path) -> None:
    events = run(GOOD, tmp_path)

    assert [("0", "ok"), ("1", "ok"), ("2", "ok")] == outcomes(events)


@pytest.mark.parametrize(
    ("signal_name", "kind"), [("SIGSEGV", "fail"), ("SIGABRT", "fail"), ("SIGKILL", "info")]
)
def test_a_process_that_dies_ends_the_case_at_hand_and_the_rest_goes_on(
    tmp_path: Path, signal_name: str, kind: str
) -> None:
    dies = (
        "if wanted[0]['name'] != '2':\n"
        "    tell(begin=0); tell(end=0, kind='ok', equal=True); tell(begin=1)\n"
        f"    os.kill(os.getpid(), signal.{signal_name})\n"
    )
    events = run(dies + GOOD, tmp_path)

    assert [("0", "ok"), ("1", kind), ("2", "ok")] == outcomes(events)
    assert signal_name in history.operations(events)[1].get("error")


@pytest.mark.parametrize("program", ["raise ImportError('no torch')", "sys.exit(0)"])
def test_a_bench_that_does_not_start_is_the_harness_fault(tmp_path: Path, program: str) -> None:
    with pytest.raises(CheckError, match="bench"):
        run(program, tmp_path)


def test_a_bench_that_hangs_is_ended_and_given_up(tmp_path: Path) -> None:
    with pytest.raises(GivenUp):
        run("tell(begin=0)\ntime.sleep(600)", tmp_path, stop_in_s=1.0)

    assert ["server_stuck"] == [e.what for e in history.read(tmp_path / "history.jsonl") if e.op < 0]


def test_the_command_is_the_bench_over_the_embedded_model() -> None:
    assert ("-m", "gates.equivalence.bench") == tuple(COMMAND[1:3])
    assert Path(COMMAND[3]).is_file()
