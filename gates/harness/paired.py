"""Two runs of the same items compared pair by pair: what changed, and what that proves.

Non-inferiority with a score limit (Tango 1998), exact McNemar, clustered errors, Holm.
Knows nothing of sets, replies and graders; every function is pure.
What could be seen at all is in `power.py`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal

from gates.errors import CheckError
from gates.harness.stats import mcnemar

Decision = Literal["pass", "fail", "unknown"]
ALPHA: Final = 0.05


@dataclass(frozen=True, slots=True)
class Pairs:
    """Counts over the items that both runs graded, and how many were not."""

    n: int
    worse: int  # right before, wrong now
    better: int  # wrong before, right now
    dropped: int  # ungraded in one of the runs, or asked in one only
    worse_items: tuple[str, ...] = ()
    better_items: tuple[str, ...] = ()

    @property
    def discordant(self) -> int:
        """How many items changed side."""
        return self.worse + self.better

    @property
    def drop(self) -> float:
        """By how much the share of right items fell; negative when it rose."""
        return (self.worse - self.better) / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """The verdict on one set: `limit` is the upper confidence limit of the drop, held against the margin."""

    decision: Decision
    drop: float
    limit: float
    margin: float
    p: float  # exact one-sided McNemar
    significant: bool  # a drop that is there, also when it is within the margin


def comparable(baseline: Mapping[str, str], candidate: Mapping[str, str]) -> None:
    """Raise CheckError unless both runs carry the same versions of prompts, graders, data and tools."""
    differing = [
        f"{name} is '{baseline.get(name)}' in the baseline and '{candidate.get(name)}' in the candidate"
        for name in sorted({*baseline, *candidate})
        if baseline.get(name) != candidate.get(name)
    ]
    if differing:
        found = "; ".join(differing)
        raise CheckError(
            f"these runs cannot be compared: {found}; repeat the baseline with the same versions"
        )


def pair(baseline: Mapping[str, bool | None], candidate: Mapping[str, bool | None]) -> Pairs:
    """Pair two runs by item; None is an item that was asked but not graded, and drops its pair."""
    both = [name for name, right in baseline.items() if right is not None and candidate.get(name) is not None]
    worse = tuple(name for name in both if baseline[name] and not candidate[name])
    better = tuple(name for name in both if candidate[name] and not baseline[name])
    dropped = len({*baseline, *candidate}) - len(both)
    return Pairs(len(both), len(worse), len(better), dropped, worse, better)


def drop_limit(pairs: Pairs, *, alpha: float = ALPHA) -> float:
    """Upper one-sided confidence limit of the drop by the paired score test (Tango 1998); 1 without pairs.

    Unlike the plain normal limit it stays honest without a discordant pair: z^2 / (n + z^2), not 0.
    """
    if pairs.n == 0:
        return 1.0
    z = NormalDist().inv_cdf(1 - alpha)
    low, high = max(-1.0, pairs.drop), 1.0
    for _ in range(60):  # halving: the statistic falls all the way from the observed drop to 1
        middle = (low + high) / 2
        if _score(pairs, middle) > -z:
            low = middle
        else:
            high = middle
    return high


def _score(pairs: Pairs, drop: float) -> float:
    """Tango's statistic for a true drop: how many standard errors the observed one lies above it."""
    n, worse, better = pairs.n, pairs.worse, pairs.better
    b = (2 * n - worse + better) * drop - worse - better
    c = -better * drop * (1 - drop)
    gains = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)  # the likeliest share of gains, given drop
    variance = n * (2 * gains + drop * (1 - drop))
    difference = worse - better - n * drop
    if variance <= 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / math.sqrt(variance)


@dataclass(frozen=True, slots=True)
class MeanDrop:
    """A mean drop with its standard error, which counts what items of one cluster have in common."""

    mean: float
    error: float

    def limit(self, *, alpha: float = ALPHA) -> float:
        """Upper one-sided confidence limit."""
        return self.mean + NormalDist().inv_cdf(1 - alpha) * self.error

    @property
    def p(self) -> float:
        """One-sided p of a drop; 1 where nothing dropped."""
        if self.mean <= 0:
            return 1.0
        return NormalDist().cdf(-self.mean / self.error) if self.error > 0 else 0.0


def clustered(drops: Sequence[float], clusters: Sequence[Hashable]) -> MeanDrop:
    """The mean drop where items share a context: deviations add up within a cluster (Miller 2024).

    `drops` has one value an item (1 worse, -1 better, 0 same), `clusters` the context of each.
    Corrected for few clusters by G / (G - 1); with one cluster nothing is known, and the error is infinite.
    """
    if not drops:
        return MeanDrop(0.0, math.inf)
    mean = math.fsum(drops) / len(drops)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(drops, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) == 1:
        return MeanDrop(mean, math.inf)
    few = len(sums) / (len(sums) - 1)
    return MeanDrop(mean, math.sqrt(few * math.fsum(total * total for total in sums.values())) / len(drops))


def non_inferiority(
    pairs: Pairs, *, margin: float, alpha: float = ALPHA, shared: MeanDrop | None = None
) -> NonInferiority:
    """Was it shown that the drop is below the margin? Neither shown nor broken is unknown.

    `shared` is the mean drop of items that share contexts: the wider limit and the larger p count.
    ValueError for a margin <= 0: where nothing may change, compare replies and not scores.
    """
    if margin <= 0:
        raise ValueError(f"the margin is {margin}; a margin is above 0, without one compare the replies")
    limit, p = drop_limit(pairs, alpha=alpha), mcnemar(pairs.worse, pairs.better)
    if shared is not None:
        limit, p = max(limit, shared.limit(alpha=alpha)), max(p, shared.p)
    significant = p <= alpha and pairs.drop > 0
    decision: Decision = "pass" if limit < margin else "fail" if significant else "unknown"
    return NonInferiority(decision, pairs.drop, limit, margin, p, significant)


def holm(p_values: Mapping[str, float], *, alpha: float = ALPHA) -> frozenset[str]:
    """The names whose p is significant although several were looked at (Holm 1979)."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    found = []
    for place, name in enumerate(ordered):
        if p_values[name] > alpha / (len(ordered) - place):
            break
        found.append(name)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Trial:
    """One set to be judged: its pairs, its margin, its level (smaller at an early look), shared contexts."""

    pairs: Pairs
    margin: float
    level: float = ALPHA
    shared: MeanDrop | None = None


def judge_trials(trials: Mapping[str, Trial], *, alpha: float = ALPHA) -> dict[str, NonInferiority]:
    """The verdicts of several sets, each at its level; Holm guards the failures, not the passes."""
    alone = {
        name: non_inferiority(trial.pairs, margin=trial.margin, alpha=trial.level, shared=trial.shared)
        for name, trial in trials.items()
    }
    p_values = {name: min(1.0, found.p * alpha / trials[name].level) for name, found in alone.items()}
    failing = holm(p_values, alpha=alpha)
    return {
        name: replace(found, decision="unknown")
        if found.decision == "fail" and name not in failing
        else found
        for name, found in alone.items()
    }
