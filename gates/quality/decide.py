"""The verdict on every set: shown not to have dropped, shown to have dropped, or not enough is known.

In this order: what keeps sides from being compared, the same build asked twice, then bits where nothing may
change and non-inferiority elsewhere, each at the level of its look, failures guarded by Holm over all sets.
Pure; knows no measure of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gates.harness import paired, power, spending, stats
from gates.harness.paired import ALPHA, Decision, NonInferiority, Pairs, Trial
from gates.quality import compare
from gates.quality.compare import Comparison, Divergence, Noise

BITS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class SetVerdict:
    """What is known of one set in one arm, and what could have been seen.

    `detectable` is the smallest true drop that would have been called one with 80 % power, as a share.
    """

    comparison: Comparison
    decision: Decision
    reason: str
    noise: Noise
    pairs: Pairs
    found: NonInferiority | None = None
    detectable: float | None = None
    divergences: Mapping[str, Divergence] = field(default_factory=dict)
    incomparable: bool = False  # unknown only because there is nothing to compare with

    @property
    def right_now(self) -> tuple[int, int]:
        """How many items the candidate got right, and how many were graded."""
        graded = [r.correct for r in self.comparison.now.values() if r.correct is not None]
        return sum(graded), len(graded)

    @property
    def name(self) -> str:
        """Set and arm in words."""
        return self.comparison.plan.name


def judge(comparisons: Sequence[Comparison], *, looks: int) -> tuple[SetVerdict, ...]:
    """The verdict of every comparison, in their order; `looks` is how often each may be looked at."""
    noises = {c.plan.name: compare.noise(c.twice) for c in comparisons}
    strange = paired.holm({name: noise.p for name, noise in noises.items() if noise.n})
    blocked = {
        c.plan.name: found
        for c in comparisons
        if (found := _blocked(c, noises[c.plan.name], strange, looks=looks))
    }
    trials = {
        c.plan.name: _trial(c, looks=looks)
        for c in comparisons
        if c.plan.margin > 0 and c.plan.name not in blocked
    }
    tried = paired.judge_trials(trials)
    return tuple(
        blocked.get(one.plan.name)
        or (
            _tried(one, trials[one.plan.name], tried[one.plan.name], noises[one.plan.name], len(trials))
            if one.plan.name in trials
            else _bits(one, noises[one.plan.name])
        )
        for one in comparisons
    )


def settled(comparison: Comparison, *, looks: int, family: int) -> bool:
    """Whether a set needs no more items: a look is complete, and its verdict stands whatever the others say.

    `family` is how many sets the run compares; a failure must hold against Holm's strictest share.
    """
    if comparison.plan.margin <= 0 or comparison.spoiled or comparison.incomparable:
        return False
    if not _look(comparison, looks=looks):
        return False
    trial = _trial(comparison, looks=looks)
    found = paired.non_inferiority(trial.pairs, margin=trial.margin, alpha=trial.level, shared=trial.shared)
    return found.decision == "pass" or (found.decision == "fail" and found.p <= trial.level / family)


def _blocked(one: Comparison, noise: Noise, strange: frozenset[str], *, looks: int) -> SetVerdict | None:
    """The verdict where nothing can be compared yet; None where it can."""
    if one.spoiled:
        return _unknown(one, one.spoiled, noise)
    if one.incomparable:
        return replace(_unknown(one, one.incomparable, noise), incomparable=True)
    if one.plan.name in strange:
        counts = f"of {noise.n} items {noise.worse} got worse and {noise.better} better (p {noise.p:.2g})"
        return _unknown(one, f"the same build asked twice differs beyond chance: {counts}", noise)
    if not _look(one, looks=looks):
        asked = f"only {len(one.now)} of {one.plan.items} items were asked, which completes no look"
        return _unknown(one, asked, noise)
    return None


def _unknown(
    one: Comparison, reason: str, noise: Noise, found: Mapping[str, Divergence] | None = None
) -> SetVerdict:
    return SetVerdict(one, "unknown", reason, noise, one.pairs, divergences=found or {})


def _look(one: Comparison, *, looks: int) -> int:
    """The look that the asked items complete; 0 between two looks."""
    look = spending.look_of(len(one.now), one.plan.items, looks=looks)
    needed = spending.items_of(look, one.plan.items, looks=looks)
    return look if look == looks or len(one.now) == needed else 0


def _trial(one: Comparison, *, looks: int) -> Trial:
    level = spending.levels(looks, alpha=ALPHA)[_look(one, looks=looks) - 1]
    return Trial(one.pairs, one.plan.margin, level, one.shared)


def _tried(one: Comparison, trial: Trial, found: NonInferiority, noise: Noise, family: int) -> SetVerdict:
    pairs = trial.pairs
    changing = max(noise.rate, pairs.discordant / pairs.n if pairs.n else 0.0)
    detectable = power.detectable_drop(pairs.n, noise=changing, alpha=trial.level / family)
    reason = _words(found, detectable) + _restless(pairs, noise, family)
    return SetVerdict(one, found.decision, reason, noise, pairs, found, detectable)


def _words(found: NonInferiority, detectable: float) -> str:
    seen = f"would have seen a drop of {detectable:.1%}" if detectable < 1 else "would have seen no drop"
    if found.decision == "pass":
        small = f"a drop of {found.drop:.2%} is there; " if found.significant else ""
        return f"{small}lost at most {found.limit:.2%}, margin {found.margin:.2%}, {seen}"
    if found.decision == "fail":
        return f"dropped by {found.drop:.2%} (p {found.p:.2g}), margin {found.margin:.2%}, {seen}"
    chance = "chance explains it over so many sets" if found.significant else "not enough evidence"
    return f"{chance}: may have lost {found.limit:.2%}, margin {found.margin:.2%}, {seen}"


def _restless(pairs: Pairs, noise: Noise, family: int) -> str:
    """In words that more items changed side, in whatever direction, than noise explains; else nothing."""
    if not noise.n or not pairs.n:
        return ""
    p = stats.fisher(pairs.discordant, pairs.n, noise.worse + noise.better, noise.n)
    if p > ALPHA / family:
        return ""
    twice = f"{noise.rate:.1%} when the same build was asked twice"
    return f"; {pairs.discordant / pairs.n:.1%} of the items changed side, {twice} (p {p:.2g})"


def _bits(one: Comparison, noise: Noise) -> SetVerdict:
    """Where nothing may change: every reply against its baseline, believed only if that repeats itself.

    What is no reply, on either side, differs from nothing and equals nothing.
    """
    shared = [(item, one.before[item], record) for item, record in one.now.items() if item in one.before]
    both = [pair for pair in shared if all(side.correct is not None for side in pair[1:])]
    parted = {item: compare.divergence(before, now) for item, before, now in both}
    found = {item: place for item, place in parted.items() if place is not None}
    if len(shared) < len(one.now):
        return _unknown(one, f"the baseline has only {len(shared)} of {len(one.now)} items", noise, found)
    if not found and len(both) < len(one.now):
        lost = f"{len(one.now) - len(both)} of {len(one.now)} items have no reply on one side"
        return _unknown(one, f"{lost}, so nobody knows whether it changed", noise)
    if not found:
        return SetVerdict(one, "pass", f"all {len(both)} replies are those of the baseline", noise, one.pairs)
    first = "; ".join(f"{item} at {place}" for item, place in list(found.items())[:BITS_SHOWN])
    said = f"{len(found)} of {len(both)} replies differ from the baseline: {first}"
    if noise.n == 0:
        return _unknown(one, f"{said}; nothing was asked twice, so it may be noise", noise, found)
    if noise.differing and stats.fisher(len(found), len(both), noise.differing, noise.n) > ALPHA:
        repeated = f"the same build asked twice differed in {noise.differing} of {noise.n}"
        return _unknown(one, f"{said}; {repeated}, so bits prove nothing", noise, found)
    return SetVerdict(one, "fail", said, noise, one.pairs, divergences=found)
