"""Is the time to the first token the same at every depth?  Spread and slope of a tier, worst of several.

Pure numbers in, pure numbers out; knows nothing of events and limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.harness.stats import Slope, theil_sen

SLOPE_NEEDS: Final = 8  # with fewer depths chance alone often orders the times
TRIM_NEEDS: Final = 8


@dataclass(frozen=True, slots=True)
class Timing:
    """One cold cell: where its needle lay, and its first-token time scaled to exactly the tier's tokens."""

    depth: float
    first_token_s: float


@dataclass(frozen=True, slots=True)
class Tier:
    """The cold cells of one tier."""

    tokens: int
    timings: tuple[Timing, ...]

    @property
    def typical_s(self) -> float:
        """The median first-token time."""
        return median(timing.first_token_s for timing in self.timings)


def scaled(first_token_s: float, *, prompt_tokens: int, tier_tokens: int) -> float:
    """The time that the prompt would have taken at the tier's length, which it misses by 1 % at most."""
    return first_token_s * tier_tokens / prompt_tokens


def spread(tier: Tier, *, noise_s: float, trim: int, noise_ratio: float = 0.0) -> float:
    """(slowest - fastest - noise) / median, 0 at least; of eight or more the `trim` outermost are left out.

    The noise is what like prompts differ by on the host: the larger of `noise_s` and `noise_ratio` medians.
    """
    times = sorted(timing.first_token_s for timing in tier.timings)
    if len(times) >= TRIM_NEEDS and trim:
        times = times[trim:-trim]
    noise_s = max(noise_s, noise_ratio * tier.typical_s)
    return max(0.0, times[-1] - times[0] - noise_s) / tier.typical_s


def slope(tier: Tier, *, tiers: int) -> Slope | None:
    """How much the first-token time changes from front to end, in medians; None for few cells.

    The confidence is 95 % over all `tiers` together (Bonferroni).
    """
    return _slope([(t.depth, t.first_token_s / tier.typical_s) for t in tier.timings], 1 - 0.05 / tiers)


def joint_slope(tiers: Sequence[Tier]) -> Slope | None:
    """The same over all tiers at once, each time in medians of its own tier: the narrowest interval."""
    times = [(t.depth, t.first_token_s / tier.typical_s) for tier in tiers for t in tier.timings]
    return _slope(times, 0.95)


def _slope(times: Sequence[tuple[float, float]], confidence: float) -> Slope | None:
    """The slope of (depth, time) pairs; None where they are few or all at one depth."""
    depths = [depth for depth, _ in times]
    if len(times) < SLOPE_NEEDS or len(set(depths)) < 2:
        return None
    return theil_sen(depths, [time for _, time in times], confidence=confidence)


def distance_from_zero(slope: Slope) -> float:
    """How far the slope's interval lies from 0; 0 when it contains it."""
    low, high = slope.interval
    return max(0.0, low, -high)


def width(slope: Slope) -> float:
    """How much the slope's interval leaves open."""
    low, high = slope.interval
    return high - low


def worst(values: Sequence[tuple[float, int]]) -> tuple[float, int] | None:
    """The largest (value, tier), or None when there is none."""
    return max(values, default=None)
