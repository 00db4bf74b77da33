"""The cold first-token times of a needle history: of every recall cell the fastest, on an undisturbed host.

The fastest, since a host only ever adds time: a first token that waits for the depth waits in every asking.
Owns which replies are timed; `flatness` says what is flat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gates.harness.history import Operation
from gates.needle.flatness import Tier, Timing, scaled

COLD: Final = "cold"  # a first turn that is asked again, with another text, for its time alone
TIMED: Final = ("recall", COLD)


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
    """The fastest time of every cell that has one, by tier."""
    fastest: dict[tuple[int, float, str], float] = {}
    for one in quiet:
        seconds, prompt, tier = one.get("first_token_s"), one.get("prompt_tokens"), one.get("tier_tokens")
        if seconds and prompt:
            place = (tier, one.get("depth"), one.get("cell"))
            time_s = scaled(seconds, prompt_tokens=prompt, tier_tokens=tier)
            fastest[place] = min(fastest.get(place, time_s), time_s)
    tiers = sorted({tier for tier, _, _ in fastest})
    return tuple(
        Tier(tier, tuple(Timing(depth, s) for (of, depth, _), s in fastest.items() if of == tier))
        for tier in tiers
    )
