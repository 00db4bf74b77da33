"""How often the verdicts err, by simulated releases: as seldom, and catching as often, as they promise.

The short tests take the counts of a release at once; the nightly ones make every item record and judge those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from gates.harness import paired, power, spending
from gates.harness.paired import ALPHA, Pairs, Trial
from gates.harness.stats import wilson
from gates.quality import compare, decide
from gates.quality.compare import Plan
from gates.quality.items import ItemRecord
from gates.tests.quality.records import BOUNDS, record

RELEASES = 2000
# items and margin of the sets of a release
SETS = {
    "gsm8k": (1319, 0.01),
    "mmlu_1140": (1140, 0.015),
    "ifeval": (541, 0.02),
    "mbpp": (500, 0.02),
    "mbpp_sanitized": (257, 0.03),
    "humaneval": (164, 0.04),
}
NOISES = (0.0, 0.01, 0.03, 0.06)
EVERY_SET = [
    pytest.param(
        name, noise, id=f"{name}_{noise:.0%}", marks=() if name in ("ifeval", "humaneval") else nightly
    )
    for nightly in [pytest.mark.nightly]
    for name in SETS
    for noise in NOISES
]


def agrees(hits: int, n: int, promised: float) -> bool:
    """Whether so many of n are what a chance promises, within its binomial interval (99.9 %)."""
    low, high = wilson(hits, n, confidence=0.999)
    return low <= promised <= high


def told(name: str, hits: int, promised: float) -> None:
    """Say what was counted, for the tables in docs/gates.md (`-s` shows it)."""
    print(f"\n{name}: {hits} of {RELEASES}, promised {promised:.1%}")


def at_most(hits: int, n: int, promised: float) -> bool:
    """Whether so many of n are no more than a chance promises, within its binomial interval (99.9 %)."""
    return wilson(hits, n, confidence=0.999)[0] <= promised


def simulated(source: Generator, n: int, *, drop: float, noise: float) -> NDArray[np.int64]:
    """Losses and gains of many releases: noise flips as many items in each direction, the drop loses more."""
    return source.multinomial(n, [noise / 2 + drop, noise / 2, 1 - noise - drop], size=RELEASES)[:, :2]


@cache
def decision(n: int, worse: int, better: int, margin: float, level: float = ALPHA) -> str:
    pairs = Pairs(n, worse, better, 0)
    return paired.non_inferiority(pairs, margin=margin, alpha=level).decision


def share(counts: NDArray[np.int64], n: int, margin: float, wanted: str) -> int:
    return sum(decision(n, int(worse), int(better), margin) == wanted for worse, better in counts)


@pytest.mark.parametrize(("name", "noise"), EVERY_SET)
def test_an_unchanged_set_fails_as_seldom_as_alpha_says(name: str, noise: float) -> None:
    n, margin = SETS[name]
    counts = simulated(np.random.default_rng(1), n, drop=0.0, noise=noise)
    failed = share(counts, n, margin, "fail")
    told(f"{name}, noise {noise:.0%}, unchanged, failed", failed, ALPHA)

    assert at_most(failed, RELEASES, ALPHA)


@pytest.mark.parametrize(("name", "noise"), EVERY_SET)
def test_a_set_that_lost_all_of_its_margin_passes_as_seldom_as_alpha_says(name: str, noise: float) -> None:
    n, margin = SETS[name]
    counts = simulated(np.random.default_rng(2), n, drop=margin, noise=noise)
    passed = share(counts, n, margin, "pass")
    told(f"{name}, noise {noise:.0%}, dropped by its margin, passed", passed, ALPHA)

    assert at_most(passed, RELEASES, ALPHA)


@pytest.mark.parametrize(("name", "noise"), EVERY_SET)
def test_the_detectable_drop_is_seen_as_often_as_its_power_says(name: str, noise: float) -> None:
    n, _ = SETS[name]
    drop = power.detectable_drop(n, noise=noise)
    counts = simulated(np.random.default_rng(3), n, drop=drop, noise=noise)
    promised = power.power_of(n, drop, noise=noise)
    failed = share(counts, n, 1e-9, "fail")
    told(f"{name}, noise {noise:.0%}, dropped by {drop:.2%}, failed", failed, promised)

    assert power.POWER == pytest.approx(promised, abs=1e-3)
    assert agrees(failed, RELEASES, promised)


@pytest.mark.parametrize(("noise", "least"), [(0.01, 0.93), (0.03, 0.6)])
def test_an_unchanged_set_mostly_passes_and_is_else_unknown(noise: float, least: float) -> None:
    passed = {}
    for name, (n, margin) in SETS.items():
        counts = simulated(np.random.default_rng(12), n, drop=0.0, noise=noise)
        passed[name] = share(counts, n, margin, "pass") / RELEASES

    assert min(passed.values()) >= least


def test_a_release_of_six_unchanged_sets_fails_as_seldom_as_alpha_says() -> None:
    source = np.random.default_rng(4)
    drawn = {name: simulated(source, n, drop=0.0, noise=0.03) for name, (n, _) in SETS.items()}
    failed = 0
    for release in range(RELEASES):
        trials = {
            name: Trial(Pairs(n, int(drawn[name][release, 0]), int(drawn[name][release, 1]), 0), margin)
            for name, (n, margin) in SETS.items()
        }
        failed += any(found.decision == "fail" for found in paired.judge_trials(trials).values())

    assert at_most(failed, RELEASES, ALPHA)


@dataclass(frozen=True, slots=True)
class Ending:
    """At which look a set was decided, and how."""

    decision: str
    look: int


def looked_at(source: Generator, n: int, *, margin: float, drop: float, noise: float) -> list[Ending]:
    """Releases whose items come in four parts and stop at the first look that decides."""
    looks = 4
    levels = spending.levels(looks, alpha=ALPHA)
    sizes = np.diff([0, *(spending.items_of(look, n, looks=looks) for look in range(1, looks + 1))])
    parts = [simulated(source, int(size), drop=drop, noise=noise) for size in sizes]
    sums, seen = np.cumsum(parts, axis=0), np.cumsum(sizes)
    endings = []
    for release in range(RELEASES):
        for look in range(looks):
            worse, better = map(int, sums[look, release])
            found = decision(int(seen[look]), worse, better, margin, levels[look])
            if found != "unknown" or look == looks - 1:
                endings.append(Ending(found, look + 1))
                break
    return endings


def test_early_looks_err_no_more_often_than_one_look_at_the_end() -> None:
    unchanged = looked_at(np.random.default_rng(5), 1319, margin=0.02, drop=0.0, noise=0.03)
    at_margin = looked_at(np.random.default_rng(6), 1319, margin=0.02, drop=0.02, noise=0.03)

    assert at_most(sum(end.decision == "fail" for end in unchanged), RELEASES, ALPHA)
    assert at_most(sum(end.decision == "pass" for end in at_margin), RELEASES, ALPHA)


def test_early_looks_spare_items_where_the_answer_is_plain() -> None:
    unchanged = looked_at(np.random.default_rng(7), 1319, margin=0.03, drop=0.0, noise=0.01)
    broken = looked_at(np.random.default_rng(8), 1319, margin=0.01, drop=0.05, noise=0.01)

    assert np.mean([end.look for end in unchanged]) < 3
    assert np.mean([end.look for end in broken]) < 3
    assert all(end.decision == "fail" for end in broken)


@cache
def wrong_and_right(place: int) -> tuple[ItemRecord, ItemRecord]:
    return record(place, False), record(place, True)


@dataclass(frozen=True, slots=True)
class Liar:
    """A set, how often a build gets it right and contradicts itself, and which share a liar spoils."""

    n: int
    rate: float
    noise: float
    spoiled: float

    @property
    def flips(self) -> tuple[float, float]:
        """How often a second run of the same build loses a right item, and gains a wrong one."""
        return self.noise / 2 / self.rate, self.noise / 2 / (1 - self.rate)

    @property
    def promised(self) -> float:
        """How often the power table says that this one is caught."""
        lost, gained = self.flips
        worse = self.rate * (lost + (1 - lost) * self.spoiled)
        better = (1 - self.rate) * gained * (1 - self.spoiled)
        return power.power_of(self.n, worse - better, noise=2 * better)

    def release(self, source: Generator) -> tuple[list[ItemRecord], list[ItemRecord]]:
        """The records of the build before, and of one that spoils a share of its right answers."""
        before = source.random(self.n) < self.rate
        lost, gained = self.flips
        draws = source.random(self.n)
        now = np.where(before, draws >= lost, draws < gained)
        now &= source.random(self.n) >= self.spoiled
        return _records(before), _records(now)


def _records(rights: NDArray[np.bool_]) -> list[ItemRecord]:
    return [wrong_and_right(place)[int(right)] for place, right in enumerate(rights)]


def caught(liar: Liar, releases: int, seed: int) -> int:
    """How many releases of a liar the verdict calls a fail, judged from their item records."""
    source, plan = np.random.default_rng(seed), Plan("gsm8k", "fast", liar.n, 1e-6, BOUNDS)
    found = 0
    for _ in range(releases):
        kept, records = liar.release(source)
        (verdict,) = decide.judge(compare.comparisons([plan], records, kept), looks=1)
        found += verdict.decision == "fail"
    return found


LIARS = [
    pytest.param(Liar(n, rate, noise, spoiled), id=f"{name}_{noise:.0%}_spoiled_{spoiled:.0%}")
    for name, n, rate in [("humaneval", 164, 0.91), ("mbpp", 500, 0.89), ("gsm8k", 1319, 0.97)]
    for noise in (0.0, 0.03)
    for spoiled in (0.02, 0.05, 0.10)
]


@pytest.mark.parametrize("liar", LIARS[:6])
def test_a_server_that_spoils_some_answers_is_caught_as_often_as_promised(liar: Liar) -> None:
    assert agrees(caught(liar, 200, seed=9), 200, liar.promised)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("liar", LIARS)
def test_over_many_releases_a_spoiling_server_is_caught_as_often_as_promised(liar: Liar) -> None:
    found = caught(liar, RELEASES, seed=10)
    told(f"{liar.n} items, noise {liar.noise:.0%}, {liar.spoiled:.0%} spoiled, caught", found, liar.promised)

    assert agrees(found, RELEASES, liar.promised)


def test_a_spoiling_server_never_passes_where_its_drop_is_twice_the_margin() -> None:
    liar, plan = Liar(1319, 0.97, 0.01, 0.05), Plan("gsm8k", "fast", 1319, 0.02, BOUNDS)
    for seed in range(40):
        kept, records = liar.release(np.random.default_rng(seed))
        (verdict,) = decide.judge(compare.comparisons([plan], records, kept), looks=1)
        assert "pass" != verdict.decision
