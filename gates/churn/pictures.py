"""What a churn looks like: the server's memory over time, and the time to the first token of every round."""

from __future__ import annotations

from collections.abc import Sequence

from gates.churn.drift import Sample
from gates.harness.history import Operation
from gates.harness.lines import Line, chart
from gates.harness.verdict import Picture

MIB, MINUTE_S = 2**20, 60.0


def pictures(
    samples: Sequence[Sample],
    span: tuple[float, float],
    rounds: Sequence[Operation],
    colds: Sequence[Operation],
    storms: Sequence[tuple[float, float]],
) -> tuple[Picture, ...]:
    """The drawings for which there are points."""
    start = span[0]
    marks = [(begin - start) / MINUTE_S for begin, _ in storms]
    drawn = []
    if samples:
        held = Line("anonymous + swapped", [(one.t_s / MINUTE_S, one.held_bytes / MIB) for one in samples])
        svg = chart([held], x="minutes of churn", y="MiB", marks=marks, marked="storm")
        drawn.append(Picture("memory", "Memory of the server while it was churned", svg))
    warm = _times(rounds, start)
    if warm:
        lines = [Line("deep, from cache", warm, dots=True)]
        if cold := _times(colds, start):
            lines.append(Line("as deep, cold", cold, dots=True))
        svg = chart(lines, x="minutes of churn", y="seconds to the first token", marks=marks, marked="storm")
        drawn.append(Picture("first_token", "Time to the first token of the deep conversation", svg))
    return tuple(drawn)


def _times(asked: Sequence[Operation], start: float) -> list[tuple[float, float]]:
    return [
        ((one.invoke.t_s - start) / MINUTE_S, one.get("first_token_s"))
        for one in asked
        if one.get("first_token_s")
    ]
