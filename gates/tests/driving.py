"""Drives a gate against a server at an address, and judges what came of it; for the test files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gates import registry
from gates.errors import DriveStopped
from gates.harness import history, room
from gates.harness.client import Client
from gates.harness.history import History
from gates.harness.launch import Attached
from gates.harness.rig import Rig
from gates.harness.verdict import Judgement, Verdict, spec_of
from gates.profile import Settings

HASTE: Final = 5.0  # a server of this process needs no more than a fifth of a wait


class Counted:
    """Progress that only demands that no gate begins more cells than it said, and weighs them all or none."""

    def __init__(self) -> None:
        self.left = 0

    def cells(self, total: int, *, weights: Sequence[float] | None = None) -> None:
        """So many are to come."""
        assert weights is None or len(weights) == total
        self.left = total

    def cell(self, label: str) -> None:
        """One begins."""
        assert self.left > 0, f"{label}: one more cell than was said"
        self.left -= 1


def hasty(seconds: float) -> None:
    """Wait a fifth as long: waiting is never what is tested."""
    time.sleep(seconds / HASTE)


def judged_at(
    base_url: str,
    folder: Path,
    table: Settings,
    *,
    context_tokens: int = 8192,
    deadline_s: float | None = None,
    **rig: Any,
) -> Judgement:
    """Plan, drive and check of the gate that this table is of; further words go to its rig."""
    gate = room.load(registry.find(table.table))
    with (
        Client(base_url, deadline_s=deadline_s or table.number("deadline_s")) as client,
        History(folder / "history.jsonl") as record,
    ):
        words = {"data": None, "context_tokens": context_tokens, "pause": hasty, **rig}
        try:
            gate.drive(
                gate.plan(table, seed=7), Rig(client, record, Counted(), Attached(base_url).alive, **words)
            )
            record.note(room.FINISHED)
        except DriveStopped:
            pass
    return room.judge(gate, history.read(folder / "history.jsonl"), table, None)


def broken(judgement: Judgement) -> set[str]:
    """The claims that do not hold."""
    failed = [measure for measure in judgement.measures if measure.verdict is Verdict.FAIL]
    return {measure.id for measure in failed if not spec_of(measure.id).notice}
