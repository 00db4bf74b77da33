"""What the quality gate asks: which sets in which arm, how many items, and how.

Pure: the items themselves are read or drawn when they are asked.  Knows no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gates.errors import UsageError
from gates.profile import Settings
from gates.quality import pool
from gates.quality.asking import Arm
from gates.quality.grading import Bounds


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one arm in a profile."""

    items: str
    scores: str
    lengths: str
    margins: str
    limit: str


_KEYS: Final[Mapping[Arm, _Keys]] = {
    "fast": _Keys("fast_items", "fast_min_scores", "fast_mean_tokens", "fast_margins", "fast_max_tokens"),
    "thinking": _Keys(
        "thinking_items",
        "thinking_min_scores",
        "thinking_mean_tokens",
        "thinking_margins",
        "thinking_max_tokens",
    ),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One set in one arm; `max_tokens` is what one reply may take, its reasoning counted."""

    set: str
    arm: Arm
    items: int
    max_tokens: int
    min_score: float  # share of right items
    mean_tokens: float  # that a reply usually has; 0 where that is not known
    margin: float  # share of the items that may be lost; 0 where no reply may change

    @property
    def name(self) -> str:
        """Set and arm in words."""
        return f"{self.set} {self.arm}"


@dataclass(frozen=True, slots=True)
class QualityPlan:
    """All parts, how many items of each are asked twice, and how many requests a server gets at a time."""

    parts: tuple[Part, ...]
    twice: int
    concurrency: int
    retries: int  # of a request that a fault of transport ended
    probes: int  # items on which the server's honesty is tried
    seed: int
    looks: int  # how often each set is looked at, the last time at its end
    bounds: Bounds

    @property
    def cells(self) -> int:
        """One for each answer of the judged server, and for each item on which its honesty is tried."""
        return sum(part.items + self.again(part) for part in self.parts) + self.probes

    def again(self, part: Part) -> int:
        """How many items of a part are asked twice, the first ones."""
        return min(self.twice, part.items)


def plan(settings: Settings, *, seed: int) -> QualityPlan:
    """The plan of a profile's quality table; UsageError when its lists do not fit each other."""
    return QualityPlan(
        parts=parts(settings),
        twice=settings.count("twice_items"),
        concurrency=max(1, settings.count("concurrency")),
        retries=settings.count("transport_retries"),
        probes=settings.count("honesty_items"),
        seed=seed,
        looks=max(1, settings.count("looks")),
        bounds=bounds(settings),
    )


def bounds(settings: Settings) -> Bounds:
    """Up to where a run still judges the model: the limits of the measures that count what was lost."""
    return Bounds(settings.number("max_fault_ratio"), settings.number("max_truncated_ratio"))


def parts(settings: Settings) -> tuple[Part, ...]:
    """The sets in their arms, those that are asked at all; UsageError when the lists do not fit."""
    names = settings.texts("sets")
    for name in names:
        pool.check_name(name)
    found = [part for arm in _KEYS for part in _of_arm(settings, names, arm)]
    if not found:
        raise UsageError("[quality] asks nothing: fast_items and thinking_items hold only zeros")
    return tuple(found)


def _of_arm(settings: Settings, names: tuple[str, ...], arm: Arm) -> list[Part]:
    keys = _KEYS[arm]
    items = settings.counts(keys.items)
    scores, lengths, margins = (settings.numbers(key) for key in (keys.scores, keys.lengths, keys.margins))
    lists = {keys.items: items, keys.scores: scores, keys.lengths: lengths, keys.margins: margins}
    for key, values in lists.items():
        if len(values) != len(names):
            raise UsageError(
                f"[quality] {key} has {len(values)} values and sets has {len(names)}: one for each set"
            )
    return [
        Part(name, arm, pool.size(name, count), settings.count(keys.limit), score, length, margin)
        for name, count, score, length, margin in zip(names, items, scores, lengths, margins, strict=True)
        if count
    ]
