"""What the equivalence gate runs: every case of both tables, unfolded with the sizes of a profile.

Pure and seeded.  Knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.equivalence import table
from gates.equivalence.table import Sizes
from gates.profile import Settings


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the record: `what` is `pair` or `twin`, `subject` its id, `name` which case of it."""

    what: str
    subject: str
    name: str
    values: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Unique in a plan."""
        return f"{self.subject}/{self.name}"


@dataclass(frozen=True, slots=True)
class EquivalencePlan:
    """The cases in order, and what all of them share."""

    every: tuple[Case, ...]
    sizes: Sizes

    @property
    def cells(self) -> int:
        """One cell a case."""
        return len(self.every)


def plan(settings: Settings, *, seed: int) -> EquivalencePlan:
    """Pairs first, then kernels."""
    sizes = Sizes.of(settings, seed)
    pairs = [Case("pair", subject, name, values) for subject, name, values in table.cases(sizes)]
    shapes = settings.texts("twin_shapes")
    twins = [Case("twin", twin.id, shape, {"shape": shape}) for twin in table.TWINS for shape in shapes]
    return EquivalencePlan((*pairs, *twins), sizes)
