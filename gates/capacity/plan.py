"""What the capacity gate asks: two deep conversations, as many more as the budget holds, and a storm.

Pure and seeded.  Knows no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from gates.errors import UsageError
from gates.needle.deep import DeepText, make_text
from gates.needle.plan import HAYS, HayKind
from gates.profile import Settings

DEEP: Final = 2  # conversations that are live and decode at the same time
TOGETHER: Final = 3  # codes that each is asked for at once, so that its answer lasts
CODES: Final = 2 * TOGETHER + 3  # of a deep text: a first turn, two answers that last, two follow-ups
GROWTH_TOKENS: Final = 512  # all turns of a deep conversation beside its text
SHORT_TOKENS: Final = 256  # of a request of the storm


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Everything that is asked; fillers come one after the other until the budget is full."""

    hay: HayKind
    deep: tuple[DeepText, ...]
    fillers: tuple[DeepText, ...]
    storm: tuple[DeepText, ...]
    storm_tokens: int
    deadline_s: float
    cache_mib: int
    pin: bool

    @property
    def cells(self) -> int:
        """Conversations at most, and the storm."""
        return len(self.deep) + len(self.fillers) + 1

    @property
    def context_tokens(self) -> int:
        """What the longest conversation needs."""
        longest = max(deep.tokens for deep in (*self.deep, *self.fillers))
        return longest + longest // 50 + GROWTH_TOKENS


def plan(settings: Settings, *, seed: int) -> CapacityPlan:
    """The plan of a profile's capacity table; UsageError when its numbers do not fit each other."""
    if settings.text("hay") not in HAYS:
        raise UsageError(f"[capacity] hay is '{settings.text('hay')}'; allowed are {', '.join(HAYS)}")
    tokens = settings.counts("deep_tokens")
    if len(tokens) != DEEP:
        raise UsageError(f"[capacity] deep_tokens is {list(tokens)}; give {DEEP} lengths")
    filler, most = settings.count("filler_tokens"), settings.count("most_filled_tokens")
    if not 0 < filler <= most:
        raise UsageError(f"[capacity] filler_tokens is {filler}; give 1 to most_filled_tokens, {most}")
    name = f"capacity/{seed}"
    return CapacityPlan(
        hay=cast(HayKind, settings.text("hay")),
        deep=tuple(make_text(f"{name}/deep/{n}", tokens=size, codes=CODES) for n, size in enumerate(tokens)),
        fillers=tuple(
            make_text(f"{name}/filler/{n}", tokens=filler, codes=2) for n in range(-(-most // filler))
        ),
        storm=tuple(
            make_text(f"{name}/storm/{n}", tokens=SHORT_TOKENS, codes=1)
            for n in range(settings.count("storm_requests"))
        ),
        storm_tokens=settings.count("storm_tokens"),
        deadline_s=settings.number("deadline_s"),
        cache_mib=settings.count("cache_mib"),
        pin=settings.switch("pin"),
    )
