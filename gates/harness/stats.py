"""Statistics of the gates, with the standard library alone.

Wilson interval, exact bounds of a failure rate, exact McNemar, Theil-Sen slope, seeded bootstrap.
Knows nothing of gates; every function is pure.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist, median

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Slope:
    """A robust slope with its interval, in units of y per unit of x."""

    value: float
    interval: Interval


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Two-sided Wilson score interval of a rate; (0, 1) when nothing was tried (Wilson 1927)."""
    _check_counts(successes, n)
    if n == 0:
        return (0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return (low, high)


def failure_bound(failures: int, n: int, *, confidence: float = 0.95) -> float:
    """Exact one-sided upper bound of a failure rate (Clopper-Pearson); 1 when nothing was tried.

    Without a failure it is 1 - (1 - confidence)^(1/n), the exact rule of three: 0 of 70 leaves 4.2 %.
    """
    _check_counts(failures, n)
    if failures == n:
        return 1.0
    if failures == 0:
        return float(1 - (1 - confidence) ** (1 / n))
    low, high = failures / n, 1.0
    for _ in range(60):  # halving: 60 steps leave less than one part in 10^18
        middle = (low + high) / 2
        if binomial_cdf(failures, n, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(at most k successes of n) at rate p, summed in logarithms so that it stands for large n."""
    if p <= 0:
        return 1.0
    if p >= 1:
        return 1.0 if k >= n else 0.0
    logs = [_log_choose(n, i) + i * math.log(p) + (n - i) * math.log1p(-p) for i in range(k + 1)]
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def mcnemar(worse: int, better: int) -> float:
    """Exact one-sided p of a drop: P(Binomial(worse + better, 1/2) >= worse); 1 without discordant pairs."""
    n = worse + better
    if n == 0:
        return 1.0
    term = ways = math.comb(n, worse)
    for i in range(worse, n):  # each binomial coefficient from the one before: exact, and fast for thousands
        term = term * (n - i) // (i + 1)
        ways += term
    return float(Fraction(ways, 2**n))


def fisher(first: int, first_n: int, second: int, second_n: int) -> float:
    """Exact one-sided p that the first share is no larger than the second (Fisher): P(at least `first`)."""
    _check_counts(first, first_n)
    _check_counts(second, second_n)
    hits, n = first + second, first_n + second_n
    ways = sum(
        math.comb(first_n, k) * math.comb(second_n, hits - k) for k in range(first, min(first_n, hits) + 1)
    )
    return float(Fraction(ways, math.comb(n, hits)))


def theil_sen(x: Sequence[float], y: Sequence[float], *, confidence: float = 0.95) -> Slope:
    """Median of all pairwise slopes, with the interval from Kendall's variance (Sen 1968, without ties).

    Needs two different x; with fewer than four points the interval is the range of the slopes.
    """
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} values and y has {len(y)}; they must be as many")
    slopes = sorted((y[j] - y[i]) / (x[j] - x[i]) for i in range(len(x)) for j in range(i) if x[i] != x[j])
    if not slopes:
        raise ValueError("a slope needs at least two points with different x")
    n = len(x)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = math.floor((len(slopes) - spread) / 2) - 1
    high = math.ceil((len(slopes) + spread) / 2)
    return Slope(median(slopes), (slopes[max(0, low)], slopes[min(len(slopes) - 1, high)]))


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float],
    *,
    seed: int,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of a statistic over resampled values; the same seed gives the same interval."""
    if not values:
        raise ValueError("a bootstrap needs at least one value")
    source = random.Random(seed)
    drawn = sorted(statistic(source.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - confidence) / 2
    low = math.floor(tail * (resamples - 1))
    return (drawn[low], drawn[resamples - 1 - low])


def spread_ratio(values: Sequence[float]) -> float:
    """(largest - smallest) / median: how flat a row of times is."""
    if not values:
        raise ValueError("a spread needs at least one value")
    return (max(values) - min(values)) / median(values)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _check_counts(part: int, n: int) -> None:
    if not 0 <= part <= n:
        raise ValueError(f"{part} of {n} is not a count of successes or failures")
