"""Check of the echo gate: the share of words that came back."""

from __future__ import annotations

from collections.abc import Sequence

from gates.harness import stats
from gates.harness.baseline import Baseline
from gates.harness.history import Event, operations
from gates.harness.verdict import Finding, Judgement, Table, measured
from gates.profile import Settings


def check(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """Right when the reply has the word; a lost request is not counted, a refused one is wrong."""
    asked = [operation for operation in operations(events, "echo") if operation.outcome != "info"]
    right = [operation for operation in asked if operation.get("word") in operation.get("text", "")]
    value = len(right) / len(asked) if asked else None
    before = baseline.measures.get("echo.right_ratio") if baseline else None
    interval = stats.wilson(len(right), len(asked))
    wrong = [operation for operation in asked if operation not in right]
    return Judgement(
        measures=(
            measured(settings, "echo.right_ratio", value, n=len(asked), interval=interval, baseline=before),
        ),
        tables=(Table("words", ("word", "outcome"), tuple((o.get("word"), o.outcome) for o in asked)),),
        findings=tuple(
            Finding("echo.right_ratio", o.get("word"), o.get("word"), o.get("text", o.outcome)) for o in wrong
        ),
    )
