"""How a comparison may be looked at before its end without erring more often than it says.

Each of the equally spaced looks may err by what an O'Brien-Fleming-like function spends up to it (Lan and
DeMets 1983); the level of a look follows from the chance of having come so far (Armitage, McPherson and Rowe
1969). Knows no items; every function is pure.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()
_STEPS: Final = 400  # of the grid of scores: levels are right to one part in a million
_WIDTH: Final = 8.0  # standard errors below zero at which the grid begins


def spent(fraction: float, *, alpha: float) -> float:
    """The part of a one-sided alpha that may be spent when this fraction of the items has been seen."""
    if not 0 < fraction <= 1:
        raise ValueError(f"the fraction of items seen is {fraction}; it lies above 0 and is at most 1")
    return 2 * _NORMAL.cdf(-_NORMAL.inv_cdf(1 - alpha / 2) / math.sqrt(fraction))


@lru_cache(maxsize=64)
def levels(looks: int, *, alpha: float) -> tuple[float, ...]:
    """The one-sided level at which each of the looks is judged; one look has all of alpha."""
    if looks < 1:
        raise ValueError(f"{looks} looks; there is at least one, at the end")
    found: list[float] = []
    step = 1 / looks
    scores, weights = [0.0], [1.0]  # where the running sum may be, and how likely, while nothing was decided
    for look in range(1, looks + 1):
        before = spent((look - 1) / looks, alpha=alpha) if look > 1 else 0.0
        border = _border(scores, weights, step, tail=spent(look / looks, alpha=alpha) - before)
        found.append(_NORMAL.cdf(-border / math.sqrt(look * step)))
        scores, weights = _advanced(scores, weights, step, border, reach=math.sqrt(look * step))
    return tuple(found)


def look_of(seen: int, planned: int, *, looks: int) -> int:
    """Which look so many of the planned items complete, from 1; 0 before the first."""
    return min(looks, seen * looks // planned) if planned else 0


def items_of(look: int, planned: int, *, looks: int) -> int:
    """How many items complete a look."""
    return -(-planned * look // looks)


def _border(scores: list[float], weights: list[float], step: float, *, tail: float) -> float:
    """Above which sum the next look stops with just this chance."""
    spread = math.sqrt(step)
    low, high = 0.0, _WIDTH
    for _ in range(60):
        middle = (low + high) / 2
        over = math.fsum(
            weight * _NORMAL.cdf((score - middle) / spread)
            for score, weight in zip(scores, weights, strict=True)
        )
        low, high = (middle, high) if over > tail else (low, middle)
    return high


def _advanced(
    scores: list[float], weights: list[float], step: float, border: float, *, reach: float
) -> tuple[list[float], list[float]]:
    """The sums below the border after one more step, on a new grid, with Simpson's weights."""
    low = -_WIDTH * reach
    width = (border - low) / _STEPS
    spread = NormalDist(0, math.sqrt(step))
    grid = [low + place * width for place in range(_STEPS + 1)]
    simpson = [1.0, *(4.0 if place % 2 else 2.0 for place in range(1, _STEPS)), 1.0]
    reached = list(zip(scores, weights, strict=True))
    density = [math.fsum(weight * spread.pdf(value - score) for score, weight in reached) for value in grid]
    return grid, [factor * width / 3 * height for factor, height in zip(simpson, density, strict=True)]
