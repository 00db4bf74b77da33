"""Judges an equivalence history: bits that differ, runs that broke, kernels beyond their tolerance.

Pure.  A pair whose runs did not do what it is about (nothing cached, nothing evicted) shows nothing, so its
family is unknown however equal they were.  Knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gates.equivalence import table
from gates.equivalence.table import FAMILIES, Family
from gates.harness.baseline import Baseline
from gates.harness.history import Event, Operation, notes, operations
from gates.harness.room import PLANNED
from gates.harness.verdict import Finding, Judgement, Measure, Table, measured
from gates.profile import Settings

DIFFERING = {family: f"equivalence.{family}_differing_count" for family in FAMILIES}
TWINS, CRASHED, APART = (
    "equivalence.twin_error_ratio",
    "equivalence.crashed_count",
    "equivalence.inapplicable_count",
)

Word = Literal["equal", "differs", "within", "beyond", "idle", "crashed", "lost", "inapplicable"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: how it ended in a word, and what there is to say."""

    operation: Operation
    word: Word
    said: str

    @property
    def subject(self) -> str:
        """The pair or the twin."""
        return str(self.operation.get("subject"))

    @property
    def where(self) -> str:
        """Its name."""
        return f"{self.subject}, {self.operation.get('case')}"

    @property
    def is_pair(self) -> bool:
        """Of the first table."""
        return self.operation.invoke.what == "pair"


def check(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The measures of the equivalence gate; one whose cases are missing or showed nothing has no value."""
    del baseline
    outcomes = [outcome(operation) for operation in operations(events)]
    planned = next((note.get("cells") for note in notes(events, PLANNED)), None)
    gap = "" if planned == len(outcomes) else f"{len(outcomes)} of {planned} cases are on record"
    measures = (
        *(_family(settings, family, outcomes, gap) for family in FAMILIES),
        _twins(settings, outcomes, gap),
        _crashed(settings, outcomes, gap),
        _inapplicable(settings, outcomes),
    )
    return Judgement(measures, (_pairs_table(outcomes), _twins_table(outcomes)), _findings(outcomes))


def outcome(operation: Operation) -> Outcome:
    """What became of one case."""
    if operation.outcome == "fail":
        return Outcome(operation, "crashed", str(operation.get("error")))
    if operation.outcome == "info":
        return Outcome(operation, "lost", str(operation.get("error", "there is no result")))
    if operation.get("inapplicable"):
        return Outcome(operation, "inapplicable", str(operation.get("inapplicable")))
    if operation.invoke.what == "twin":
        return _twin_outcome(operation)
    idle = [what for what, held in operation.get("engaged", {}).items() if not held]
    difference = operation.get("difference")
    if difference:
        return Outcome(operation, "differs", _where(difference))
    if not operation.get("values"):
        return Outcome(operation, "idle", "no value was compared")
    if idle:
        return Outcome(operation, "idle", f"not so: {'; '.join(idle)}")
    return Outcome(operation, "equal", f"{operation.get('values'):,} values")


def _twin_outcome(operation: Operation) -> Outcome:
    twin = table.twin(operation.get("subject"))
    error = operation.get("error_found")
    said = f"{twin.measure} {error:.3g}, allowed {twin.tolerance:g}; worst at {operation.get('worst')}"
    return Outcome(operation, "within" if error <= twin.tolerance else "beyond", said)


def _where(difference: dict[str, Any]) -> str:
    index = ", ".join(map(str, difference["index"]))
    count = f"{difference['differing']:,} of {difference['size']:,} differ"
    return f"{difference['tensor']} [{index}]: {difference['left']} and {difference['right']} ({count})"


def _family(settings: Settings, family: Family, outcomes: Sequence[Outcome], gap: str) -> Measure:
    mine = [one for one in outcomes if one.is_pair and table.pair(one.subject).family == family]
    differing = [one for one in mine if one.word == "differs"]
    shown = [one for one in mine if one.word in ("equal", "differs")]
    doubts = [one for one in mine if one.word in ("idle", "crashed", "lost")]
    if differing:
        note = f"first: {differing[0].where}: {differing[0].said}"
        return measured(settings, DIFFERING[family], len(differing), n=len(shown), note=note)
    if mine and all(one.word == "inapplicable" for one in mine):
        return measured(settings, DIFFERING[family], 0, n=0, note=f"not applicable: {mine[0].said}")
    if gap or doubts or not shown:
        first = f"{doubts[0].where} {doubts[0].word}: {doubts[0].said}" if doubts else ""
        note = "; ".join(part for part in (gap, first) if part) or "no case of it was run"
        return measured(settings, DIFFERING[family], None, n=len(shown), note=note)
    return measured(settings, DIFFERING[family], 0, n=len(shown))


def _twins(settings: Settings, outcomes: Sequence[Outcome], gap: str) -> Measure:
    """The worst error over its tolerance; an exact kernel that errs at all is beyond every limit."""
    mine = [one for one in outcomes if not one.is_pair]
    ratios = [(_excess(one), one) for one in mine if one.word in ("within", "beyond")]
    doubts = [one for one in mine if one.word in ("crashed", "lost", "inapplicable")]
    worst = max(ratios, key=lambda pair: pair[0], default=None)
    if worst is not None and worst[0] > 1:
        note = f"{worst[1].where}: {worst[1].said}"
        return measured(settings, TWINS, worst[0], n=len(ratios), note=note)
    if gap or doubts or worst is None:
        note = gap or (f"{doubts[0].where} {doubts[0].word}: {doubts[0].said}" if doubts else "none was run")
        return measured(settings, TWINS, None, n=len(ratios), note=note)
    return measured(settings, TWINS, worst[0], n=len(ratios), note=f"{worst[1].where}: {worst[1].said}")


def _excess(one: Outcome) -> float:
    error, tolerance = one.operation.get("error_found"), table.twin(one.subject).tolerance
    if tolerance:
        return round(float(error) / tolerance, 4)
    return 0.0 if not error else 1.0 + float(error)


def _crashed(settings: Settings, outcomes: Sequence[Outcome], gap: str) -> Measure:
    crashed = [one for one in outcomes if one.word == "crashed"]
    lost = [one for one in outcomes if one.word == "lost"]
    if crashed:
        note = f"first: {crashed[0].where}: {crashed[0].said}"
        return measured(settings, CRASHED, len(crashed), n=len(outcomes), note=note)
    doubt = gap or (f"{lost[0].where} lost: {lost[0].said}" if lost else "")
    return measured(settings, CRASHED, None if doubt else 0, n=len(outcomes), note=doubt)


def _inapplicable(settings: Settings, outcomes: Sequence[Outcome]) -> Measure:
    apart = [one for one in outcomes if one.word == "inapplicable"]
    pairs = {
        one.said: dict.fromkeys(other.subject for other in apart if other.said == one.said) for one in apart
    }
    note = "; ".join(f"{', '.join(names)}: {said}" for said, names in pairs.items())
    return measured(settings, APART, len(apart), n=len(outcomes), note=note)


def _pairs_table(outcomes: Sequence[Outcome]) -> Table:
    """One row a pair: its reason, and its worst case."""
    rows = []
    for pair in table.PAIRS:
        mine = [one for one in outcomes if one.is_pair and one.subject == pair.id]
        good = sum(one.word == "equal" for one in mine)
        bad = next((one for one in mine if one.word != "equal"), None)
        said = f"{bad.operation.get('case')} {bad.word}: {bad.said}" if bad else "all equal"
        rows.append((pair.title, pair.family, f"{good} of {len(mine)}", said, pair.reason))
    header = ("pair", "family", "equal", "first that is not", "why they must agree")
    return Table("pairs", header, tuple(rows), title="Pairs that agree bit for bit")


def _twins_table(outcomes: Sequence[Outcome]) -> Table:
    """One row a kernel and shape."""
    rows = []
    for one in outcomes:
        if one.is_pair:
            continue
        twin = table.twin(one.subject)
        cells = (one.operation.get("case"), twin.format, one.word, one.said, twin.reason)
        rows.append((twin.title, *cells))
    header = ("kernel", "shape", "format", "verdict", "error", "why so much")
    return Table("kernels", header, tuple(rows), title="Kernels against their definitions")


def _findings(outcomes: Sequence[Outcome]) -> tuple[Finding, ...]:
    return tuple(_finding(one) for one in outcomes if one.word in ("differs", "crashed", "beyond"))


def _finding(one: Outcome) -> Finding:
    if one.word == "crashed":
        return Finding(CRASHED, one.where, "a result", one.said, str(one.operation.get("traceback", "")))
    if one.is_pair:
        pair = table.pair(one.subject)
        return Finding(DIFFERING[pair.family], one.where, "the same bits", one.said, pair.reason)
    twin = table.twin(one.subject)
    return Finding(TWINS, one.where, f"{twin.measure} at most {twin.tolerance:g}", one.said, twin.reason)
