"""What a gate is made of: measures with direction and severity, cost, profile keys, faults to catch.

Knows no gate, no thresholds (profiles do) and no code of the rooms.
A limit's key in a profile follows from the measure: `needle.recall_ratio`, better higher, is
`[needle] min_recall_ratio`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]
Severity = Literal["blocker", "critical", "normal", "minor"]
Cost = Literal["cheap", "medium", "dear"]
Kind = Literal[
    "count", "counts", "number", "numbers", "ratio", "ratios", "text", "texts", "switch", "positive"
]

SIGNS: Mapping[Better, str] = {"higher": ">=", "lower": "<="}  # how a value stands to its limit
COST_ORDER: tuple[Cost, ...] = ("cheap", "medium", "dear")
UNITS: tuple[str, ...] = ("tokens", "bytes", "gib", "ms", "s", "tps", "ratio", "count")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting of a gate in a profile: its name and what kind of value it takes."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """One claim: a measured number with a direction.

    A `notice` is shown but does not move the verdict; a `paired` claim compares with a baseline.
    """

    id: str
    title: str
    better: Better
    severity: Severity = "blocker"
    arm: str = "cold"
    notice: bool = False
    paired: bool = False

    @property
    def unit(self) -> str:
        """The unit, which ends the id: one of UNITS."""
        return self.id.rsplit("_", 1)[-1].rsplit(".", 1)[-1]

    @property
    def limit_key(self) -> str:
        """The name of this measure's limit in its gate's table of a profile."""
        return ("min_" if self.better == "higher" else "max_") + self.id.split(".", 1)[1]


@dataclass(frozen=True, slots=True)
class GateSpec:
    """One gate: `room` is the package with plan, drive and check; None where the harness itself measures.

    One `by_item` asks questions that have nothing to do with each other: it goes on from its own record after
    an interruption, where others are driven again, and it can be asked in parts.
    One that is a `white_box` judges the engine of this checkout, not what answers at the server's address.
    """

    name: str
    title: str
    room: str | None
    cost: Cost
    measures: tuple[MeasureSpec, ...]
    keys: tuple[Key, ...] = ()
    faults: tuple[str, ...] = ()
    by_item: bool = False
    white_box: bool = False

    def all_keys(self) -> tuple[Key, ...]:
        """Every key that this gate's table must have: own keys, one limit a measure, the time budget."""
        limits = tuple(Key(measure.limit_key, "number") for measure in self.measures)
        return (*self.keys, *limits, Key("budget_minutes", "positive"))

    def measure(self, measure_id: str) -> MeasureSpec:
        """The measure with this id; KeyError if the gate does not have it."""
        for measure in self.measures:
            if measure.id == measure_id:
                return measure
        raise KeyError(measure_id)
