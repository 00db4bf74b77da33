"""What a paired comparison can see: power, minimum detectable drop, and the order in which items are asked.

Exact sums over the discordant pairs, no approximation.
Knows nothing of sets and replies; every function is pure.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from gates.harness.paired import ALPHA

POWER: Final = 0.8


def power_of(n: int, drop: float, *, noise: float, alpha: float = ALPHA) -> float:
    """Chance that exact McNemar at `alpha` sees a true drop among n pairs.

    `noise` is the share of items that flip between two runs of the same build, half in each direction.
    """
    if not 0 <= noise <= 1 or noise + drop > 1:
        raise ValueError(f"noise {noise} and drop {drop} must lie within 0 and 1, and so must their sum")
    return _power(n, drop, noise, _Criticals(alpha))


@lru_cache(maxsize=1024)  # a simulation asks the same for thousands of releases
def detectable_drop(n: int, *, noise: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest true drop that n pairs would show with this power; 1 where no drop would be seen."""
    criticals = _Criticals(alpha)
    low, high = 0.0, 1 - noise
    if _power(n, high, noise, criticals) < power:
        return 1.0
    for _ in range(20):  # halving: a millionth is finer than any margin
        middle = (low + high) / 2
        if _power(n, middle, noise, criticals) < power:
            low = middle
        else:
            high = middle
    return high


class _Criticals(dict[int, int]):
    """By count of discordant pairs the smallest count of losses that is significant; n + 1 if none is."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha
        self._z = NormalDist().inv_cdf(1 - alpha)

    def __missing__(self, n: int) -> int:
        count = min(n + 1, max(0, round(n / 2 + self._z * math.sqrt(n) / 2)))
        while count > 0 and _tail(count - 1, n, 0.5) <= self._alpha:
            count -= 1
        while count <= n and _tail(count, n, 0.5) > self._alpha:
            count += 1
        self[n] = count
        return count


def _power(n: int, drop: float, noise: float, criticals: _Criticals) -> float:
    share = noise + drop
    if n == 0 or share <= 0:
        return 0.0
    mean, spread = n * share, math.sqrt(n * share * (1 - share))
    first, last = max(0, math.floor(mean - 6 * spread - 6)), min(n, math.ceil(mean + 6 * spread + 6))
    loss = (noise / 2 + drop) / share
    return math.fsum(_pmf(m, n, share) * _tail(criticals[m], m, loss) for m in range(first, last + 1))


def _tail(count: int, n: int, p: float) -> float:
    """P(Binomial(n, p) >= count), summed away from the mean until the terms no longer matter."""
    if count > n:
        return 0.0
    if count <= 0 or p >= 1:
        return 1.0
    if count > n * p:
        return _sum_from(count, n, p)
    return 1 - _sum_from(n - count + 1, n, 1 - p)


def _sum_from(count: int, n: int, p: float) -> float:
    term = total = _pmf(count, n, p)
    odds = p / (1 - p)
    while count < n and term > 1e-17 * total:
        term *= (n - count) / (count + 1) * odds
        count += 1
        total += term
    return total


def _pmf(k: int, n: int, p: float) -> float:
    if p <= 0 or p >= 1:
        return float(k == (n if p >= 1 else 0))
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


def hashed_order(names: Iterable[str], *, seed: int) -> list[str]:
    """The order in which items are asked: fixed by a hash, so that it owes nothing to their file."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest())
