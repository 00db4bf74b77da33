"""What a verify step of several rows costs beside a plain one: the table that a speculation controller reads.

Every entry is a whole number of ten-thousandths of a plain step at the same depth, so that a decision made
from the table is the same on every machine.  Knows nothing of who decides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

UNIT: Final = 10_000  # one plain step
ROWS: Final = (1, 2, 3, 4, 5)  # of a step: the token that is due and up to four drafted ones

Clock = Callable[[int, int], float]  # seconds of one step of so many rows at a depth


def measure(
    depths: Sequence[int], rounds: int, clock: Clock, *, rows: Sequence[int] = ROWS
) -> dict[str, Any]:
    """The cost table: at each depth a cost per number of rows, and the bound that it surely keeps.

    A round times every step twice, in an order and in its reverse, so that a drift falls on all alike; `cost`
    is the median over the rounds, `upper` the end of the median's 95 % interval.
    """
    table = []
    for depth in depths:
        seconds = [_round(depth, clock, rows) for _ in range(rounds)]
        table.append({"depth": depth, **entries(seconds, rows)})
    return {"unit": UNIT, "rows": list(rows), "rounds": rounds, "depths": table, "draft": None}


def entries(rounds: Sequence[Mapping[int, float]], rows: Sequence[int]) -> dict[str, Any]:
    """One depth's entries from the seconds of its rounds, each by number of rows."""
    ratios = [sorted(seconds[count] / seconds[1] for seconds in rounds) for count in rows]
    last = upper_place(len(rounds))
    return {
        "plain_us": round(statistics.median(seconds[1] for seconds in rounds) * 1e6, 1),
        "cost": [round(UNIT * statistics.median(column)) for column in ratios],
        "upper": [math.ceil(UNIT * column[last]) for column in ratios],
    }


def upper_place(count: int) -> int:
    """Which of `count` sorted values bounds their median from above with 97.5 % confidence, whatever their
    distribution: the number of values above the median is binomial."""
    above, total, ways = 0, 2**count, 1
    for larger in range(count):
        above += ways
        if above / total > 0.025:
            return min(count - 1, count - larger)
        ways = ways * (count - larger) // (larger + 1)
    return count - 1


def _round(depth: int, clock: Clock, rows: Sequence[int]) -> dict[int, float]:
    seconds = dict.fromkeys(rows, 0.0)
    for count in (*rows, *reversed(rows)):
        seconds[count] += clock(depth, count) / 2
    return seconds
