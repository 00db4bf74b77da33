"""Runs cases of the equivalence gate in this process, on the smallest model, and judges what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gates import profile, registry
from gates.equivalence import table
from gates.equivalence.bench import Bench
from gates.equivalence.plan import Case
from gates.equivalence.table import Sizes
from gates.harness import history, room
from gates.harness.history import Event, History
from gates.harness.verdict import Judgement
from gates.profile import Settings

# Ratios 4 and 8, window and page 8, two windows, the last token that sees all index rows and the next.
SMALL = Sizes(
    edges=(4, 8, 16, 20, 24),
    few=(8, 24, 260),
    prompt=60,
    first_chunks=(1, 7, 9, 65, 300),
    batch_rows=(2, 3, 5),
    random_cuts=2,
    seed=7,
)
Wanted = Mapping[str, Sequence[str]]  # pairs, and of each some cases; none means all


def cases_of(wanted: Wanted) -> list[Case]:
    """The wanted cases of the first table, in its order."""
    found = [Case("pair", subject, name, values) for subject, name, values in table.cases(SMALL)]
    return [
        case
        for case in found
        if case.subject in wanted and (not wanted[case.subject] or case.name in wanted[case.subject])
    ]


def recorded(model: Path, cases: Sequence[Case], folder: Path) -> list[Event]:
    """The history of some cases, run here."""
    (folder / "cases").mkdir()
    bench = Bench(model, SMALL, folder / "cases", threads=1)
    with History(folder / "history.jsonl") as record:
        record.note(room.PLANNED, cells=len(cases))
        for case in cases:
            op = record.invoke(case.what, subject=case.subject, case=case.name, values=dict(case.values))
            told = bench.run(case)
            end = {"ok": record.ok, "fail": record.fail, "info": record.unknown}[told["kind"]]
            end(op, case.what, **{name: value for name, value in told.items() if name != "kind"})
        record.note(room.FINISHED)
    return history.read(folder / "history.jsonl")


def settings(**changes: Any) -> Settings:
    """The table of profile `ci`, with changes."""
    return Settings("equivalence", {**profile.load("ci").table("equivalence").values, **changes})


def judged(events: Sequence[Event]) -> Judgement:
    """What the gate says of a history."""
    return room.judge(room.load(registry.find("equivalence")), events, settings(), None)
