"""The graded answers of a churn history: whose they are, whether they are right, whose codes they carry.

Owns how events become cases, and the table of rounds; knows no limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.churn.plan import LEAVES
from gates.harness import ceiling
from gates.harness.history import Operation
from gates.harness.verdict import Table
from gates.needle.grade import Grade, grade_codes, place, visible

ROUND, DEEP, COLD, TWIN = "round", "deep", "cold", "twin"
SHORT: Final = ("short", "short_followup", TWIN)
BEFORE, AFTER = "sample_before", "sample_after"
GRADED: Final = (DEEP, ROUND, COLD, *SHORT, BEFORE, AFTER, ceiling.STORM)
_CODE: Final = re.compile(r"(?<!\d)\d{6}(?!\d)")
COLUMNS: Final = (
    "round",
    "attempt",
    "prompt_tokens",
    "cached_tokens",
    "first_token_s",
    "seconds",
    "finish_reason",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One answer, graded; `strangers` are codes in it that only others were told."""

    operation: Operation
    grade: Grade
    strangers: tuple[str, ...]

    @property
    def what(self) -> str:
        """The kind of request."""
        return self.operation.invoke.what

    @property
    def right(self) -> bool:
        """Whether it was right in every way."""
        return self.grade.right and not self.strangers

    def get(self, name: str) -> Any:
        """A field of the request or its reply."""
        return self.operation.get(name)


def read_cases(asked: Sequence[Operation]) -> list[Case]:
    """Every answer with a text that can be graded, in the order of asking."""
    of_cells: dict[str, set[str]] = {}
    for operation in asked:
        of_cells.setdefault(str(operation.get("cell")), set()).update(_told(operation))
    everybody = {code for codes in of_cells.values() for code in codes}
    return [
        _case(operation, everybody - of_cells[str(operation.get("cell"))])
        for operation in asked
        if operation.invoke.what in GRADED and operation.outcome == "ok"
    ]


def unanswered(operation: Operation, storms: Sequence[tuple[float, float]]) -> bool:
    """Whether a living server left a good request without an answer, for which being full is no excuse."""
    if operation.invoke.what in (ceiling.STORM, "malformed", *LEAVES):
        return False
    if operation.outcome == "info":
        return operation.end is not None and bool(operation.get("alive"))
    excused = ceiling.refused(operation) and ceiling.during(operation, storms)
    return operation.outcome == "fail" and not excused


def rounds_table(rounds: Sequence[Operation], graded: Mapping[int, Case]) -> Table:
    """One row a round."""
    rows = tuple(
        (*(one.get(column) for column in COLUMNS), _state(graded.get(one.invoke.op)), one.get("text"))
        for one in rounds
    )
    return Table("rounds", (*COLUMNS, "state", "text"), rows, title="Questions to the deep conversation")


def _told(operation: Operation) -> list[str]:
    return [*operation.get("expected", []), *operation.get("others", [])]


def _case(operation: Operation, strange: set[str]) -> Case:
    said = str(operation.get("text") or "")
    grade = grade_codes(said, operation.get("expected", []), operation.get("others", []))
    answer = visible(said)
    named = sorted(code for code in set(_CODE.findall(answer)) & strange if place(code, answer) is not None)
    return Case(operation, grade, tuple(named))


def _state(case: Case | None) -> str:
    if case is None:
        return "unanswered"
    return "right" if case.right else case.grade.found
