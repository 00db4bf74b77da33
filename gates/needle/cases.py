"""The graded turns of a needle history, the rows of its table, and the findings in plain words.

Owns how events become cases; knows no limits and no measures beyond their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.harness.history import Event, Operation, notes
from gates.harness.verdict import Finding, Table
from gates.needle.grade import Grade, grade_absent, grade_codes, place, visible
from gates.needle.usage import Doubt

CLAIMS: Final = {
    "recall": "needle.recall_ratio",
    "order": "needle.order_ratio",
    "absent": "needle.absent_ratio",
    "followup": "needle.followup_ratio",
}
COLUMNS: Final = (
    "cell", "turn", "what", "attempt", "tier_tokens", "depth", "prompt_tokens", "cached_tokens",
    "completion_tokens", "first_token_s", "seconds", "finish_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One turn of one cell; `strangers` are codes in its reply that only other cells' texts hold."""

    operation: Operation
    grade: Grade | None  # None: it got no usable reply
    strangers: tuple[str, ...] = ()

    @property
    def cell(self) -> str:
        """The cell's id."""
        return str(self.operation.get("cell"))

    @property
    def what(self) -> str:
        """recall, order, absent or followup."""
        return self.operation.invoke.what

    @property
    def first(self) -> bool:
        """Whether this is the first turn of its conversation, the cold one."""
        return bool(self.get("turn") == 1)

    @property
    def right(self) -> bool:
        """Whether the reply was right in every way."""
        return self.grade is not None and self.grade.right and not self.strangers

    @property
    def named(self) -> bool:
        """Whether every code that was asked for stands in the reply, whatever else does."""
        answer = visible(str(self.get("text") or ""))
        return all(place(code, answer) is not None for code in self.get("expected"))

    def get(self, name: str) -> Any:
        """A field of the request or its reply."""
        return self.operation.get(name)


def read_cases(asked: Iterable[Operation]) -> list[Case]:
    """Every turn of every cell, graded, in the order of asking; probes are left out."""
    turns = [operation for operation in asked if operation.invoke.what in CLAIMS]
    owners = {code: _cell(turn) for turn in turns for code in _codes(turn)}
    return [_case(turn, owners) for turn in turns]


def unanswered(operation: Operation) -> bool:
    """Whether a living server left this request without a usable reply."""
    if operation.outcome == "fail":
        return True
    return operation.end is not None and operation.outcome == "info" and bool(operation.get("alive"))


def planned_turns(events: Sequence[Event]) -> dict[str, tuple[str, ...]]:
    """The kinds of the turns of every planned cell, by its id; empty when the record does not say."""
    plans: list[dict[str, list[str]]] = [note.get("cells", {}) for note in notes(events, "planned_cells")]
    return {cell: tuple(turns) for cell, turns in plans[0].items()} if plans else {}


def table(cases: Sequence[Case]) -> Table:
    """One row a turn."""
    rows = (
        (
            *(case.get(column) if column != "what" else case.what for column in COLUMNS),
            _state(case),
            case.get("text"),
        )
        for case in cases
    )
    return Table("cells", (*COLUMNS, "state", "text"), tuple(rows))


def findings(cases: Sequence[Case], doubts: Sequence[Doubt]) -> tuple[Finding, ...]:
    """What went wrong, one finding a turn and claim, in the order of asking."""
    found: list[Finding] = []
    for case in cases:
        found += _case_findings(case)
    found += [
        Finding("needle.usage_error_ratio", doubt.cell, "true token counts", doubt.why) for doubt in doubts
    ]
    return tuple(found)


def _cell(operation: Operation) -> str:
    return str(operation.get("cell"))


def _codes(operation: Operation) -> list[str]:
    return [*operation.get("expected", []), *operation.get("others", [])]


def _case(operation: Operation, owners: Mapping[str, str]) -> Case:
    if operation.outcome != "ok":
        return Case(operation, None)
    text, own = str(operation.get("text") or ""), _cell(operation)
    if operation.invoke.what == "absent":
        grade = grade_absent(text, operation.get("others", []))
    else:
        grade = grade_codes(text, operation.get("expected", []), operation.get("others", []))
    answer = visible(text)
    mine = set(_codes(operation))
    strange = (
        c for c, owner in owners.items() if owner != own and c not in mine and place(c, answer) is not None
    )
    return Case(operation, grade, tuple(strange))


def _state(case: Case) -> str:
    if case.grade is None:
        return "unanswered" if unanswered(case.operation) else "unknown"
    if case.right:
        return "right"
    return "truncated" if case.get("finish_reason") == "length" else "wrong"


def _case_findings(case: Case) -> list[Finding]:
    where = f"{case.cell}, {case.what} at depth {case.get('depth'):.0%}"
    wanted = _wanted(case)
    said = str(case.get("text") or "")
    if case.grade is None:
        if not unanswered(case.operation):
            return []
        why = f"{case.get('error')}: {case.get('message')}"
        return [Finding("needle.unanswered_count", where, wanted, why, said)]
    found: list[Finding] = []
    if case.strangers:
        codes = ", ".join(case.strangers)
        found.append(
            Finding("needle.crosstalk_count", where, wanted, f"a code of another text: {codes}", said)
        )
    if case.grade.foreign:
        found.append(Finding("needle.decoy_ratio", where, wanted, case.grade.found, said))
    if not case.grade.right:
        found.append(Finding(CLAIMS[case.what], where, wanted, case.grade.found, said))
    if case.get("finish_reason") == "length":
        limit = f"cut at {case.get('completion_tokens')} tokens"
        found.append(Finding("needle.truncated_count", where, "a reply that ends by itself", limit, said))
    return found


def _wanted(case: Case) -> str:
    keys, codes = case.get("asked_keys"), case.get("expected")
    if not codes:
        return f"no code for the {keys[0]}"
    return ", ".join(f"{code} for the {key}" for key, code in zip(keys, codes, strict=True))
