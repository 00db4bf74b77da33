"""The cold first-token times of a needle history: one of every recall cell, on an undisturbed host.

Each is held against those asked just before and after it, at other depths, since a plan shuffles them: a host
that is slow for a while slows them alike.  Of a cell that was asked several times the median counts.
Owns which replies are timed; `flatness` says what is flat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.harness.history import Operation
from gates.needle.flatness import Tier, Timing, scaled

COLD: Final = "cold"  # a first turn that is asked again, with another text, for its time alone
TIMED: Final = ("recall", COLD)
AROUND: Final = 2  # replies before and after: some seconds of short texts, and of three cells all


@dataclass(frozen=True, slots=True)
class Times:
    """What a history tells about first tokens."""

    cells: int  # recall cells with an answered cold turn
    disturbed: int  # of these, without one that other programs left alone
    tiers: tuple[Tier, ...]  # of the others; none where most are disturbed

    @property
    def count(self) -> int:
        """How many cells are judged."""
        return sum(len(tier.timings) for tier in self.tiers)


def times(asked: Iterable[Operation], *, quiet_host_ratio: float) -> Times:
    """The cold cells of every tier; a reply is timed if others used at most that share of the processors."""
    cold = [one for one in asked if _is_cold(one)]
    quiet = [one for one in cold if (one.get("host_busy_ratio") or 0.0) <= quiet_host_ratio]
    cells, left = {one.get("cell") for one in cold}, {one.get("cell") for one in quiet}
    told = _tiers(quiet) if 2 * len(left) >= len(cells) else ()
    return Times(len(cells), len(cells) - len(left), told)


def _is_cold(operation: Operation) -> bool:
    """Whether this is an answered first turn of a recall cell."""
    return operation.invoke.what in TIMED and operation.get("turn") == 1 and operation.outcome == "ok"


def _tiers(quiet: Sequence[Operation]) -> tuple[Tier, ...]:
    """The time of every cell that has one, by tier."""
    asked: dict[int, list[Operation]] = {}
    for one in quiet:
        if one.get("first_token_s") and one.get("prompt_tokens"):
            asked.setdefault(one.get("tier_tokens"), []).append(one)
    return tuple(Tier(tokens, _timings(found, tokens)) for tokens, found in sorted(asked.items()))


def _timings(asked: Sequence[Operation], tier_tokens: int) -> tuple[Timing, ...]:
    """The cells of one tier, from its replies in the order of asking."""
    times = [
        scaled(one.get("first_token_s"), prompt_tokens=one.get("prompt_tokens"), tier_tokens=tier_tokens)
        for one in asked
    ]
    typical = median(times)
    cells: dict[tuple[str, float], list[float]] = {}
    for n, one in enumerate(asked):
        around = median(times[max(0, n - AROUND) : n + AROUND + 1])
        cells.setdefault((one.get("cell"), one.get("depth")), []).append(times[n] * typical / around)
    return tuple(Timing(depth, median(found)) for (_, depth), found in cells.items())
