"""One set in one arm, on two sides: which items are paired, which were asked twice, where replies part.

Pure: item records in, comparisons out. Knows no margin's meaning and no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal

from gates.harness import paired, stats
from gates.harness.paired import MeanDrop, Pairs
from gates.quality import grading
from gates.quality.asking import Arm
from gates.quality.grading import Bounds, Grade, Graded
from gates.quality.items import ItemRecord

Side = Mapping[str, ItemRecord]  # by item
Twice = tuple[tuple[ItemRecord, ItemRecord], ...]  # the same item of the same build, asked twice
Unit = Literal["token", "character", "reasoning"]

SNIPPET: Final = 24  # characters of each reply that are shown where they part


@dataclass(frozen=True, slots=True)
class Plan:
    """What was to be compared: the set and arm, how many items, and by how much the set may drop."""

    set: str
    arm: Arm
    items: int
    margin: float  # share of the items; 0 where no reply may change
    bounds: Bounds

    @property
    def name(self) -> str:
        """Set and arm in words."""
        return f"{self.set} {self.arm}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides of one set in one arm; `before` is empty where there is no baseline."""

    plan: Plan
    now: Side
    before: Side
    twice: Twice
    same_day: bool = False

    @property
    def pairs(self) -> Pairs:
        """Counts over the asked items that both sides graded."""
        before = {item: self.before[item].correct for item in self.now if item in self.before}
        return paired.pair(before, {item: record.correct for item, record in self.now.items()})

    @property
    def shared(self) -> MeanDrop | None:
        """The mean drop by context; None where no two items share one, for then the pairs say it all."""
        both = [(self.before[item], record) for item, record in self.now.items() if item in self.before]
        graded = [(a, b) for a, b in both if a.correct is not None and b.correct is not None]
        clusters = [now.cluster for _, now in graded]
        if len(set(clusters)) == len(clusters):
            return None
        drops = [float(bool(before.correct)) - float(bool(now.correct)) for before, now in graded]
        return paired.clustered(drops, clusters)

    @property
    def spoiled(self) -> str:
        """Why the replies of a side judge something else than a build, in words; empty when they do not."""
        if not self.now:
            return "no item was asked"
        sides = [("", self.now)]
        if self.same_day:
            sides.append(
                ("of the baseline: ", {item: r for item, r in self.before.items() if item in self.now})
            )
        reasons = (
            f"{side}{why}"
            for side, records in sides
            for why in grading.spoiled(_graded(records), self.plan.bounds)
        )
        return next(reasons, "")

    @property
    def incomparable(self) -> str:
        """Why there is nothing to compare with, in words; empty when there is."""
        if not self.before:
            return (
                "there is no baseline: name one to compare with (--control-url, --control-model),"
                " or promote a run of this model (nox -s baseline)"
            )
        graders = [sorted({r.grader_version for r in side.values()}) for side in (self.before, self.now)]
        if graders[0] != graders[1]:
            old, new = (", ".join(versions) for versions in graders)
            return f"the baseline's grader is '{old}', this one is '{new}': promote a run of this version"
        common = [item for item in self.now if item in self.before]
        if not common:
            return "the baseline has none of these items"
        other = sum(self.now[i].prompt_sha256 != self.before[i].prompt_sha256 for i in common)
        if other:
            return f"{other} of {len(common)} items are asked in other words than in the baseline"
        return ""


@dataclass(frozen=True, slots=True)
class Noise:
    """How often an item changes side, and how often its reply changes, when the same build is asked twice."""

    n: int
    worse: int  # right first, wrong the second time
    better: int
    differing: int

    @property
    def rate(self) -> float:
        """The share of items that changed side; 0 where none was asked twice."""
        return (self.worse + self.better) / self.n if self.n else 0.0

    @property
    def p(self) -> float:
        """Two-sided exact p that the second time is as good as the first."""
        return min(1.0, 2 * stats.mcnemar(max(self.worse, self.better), min(self.worse, self.better)))


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two replies part for the first time, and how each goes on."""

    place: int  # from 0
    unit: Unit
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.unit} {self.place}: {self.before!r} became {self.now!r}"


def comparisons(
    plans: Sequence[Plan], records: Sequence[ItemRecord], kept: Sequence[ItemRecord]
) -> tuple[Comparison, ...]:
    """What was planned, with its records; a baseline asked on the same day goes before the kept one."""
    return tuple(_comparison(plan, _of(plan, records), _of(plan, kept)) for plan in plans)


def noise(twice: Twice) -> Noise:
    """What the items that were asked twice tell; those without a grade on either side are left out."""
    graded = [(a, b) for a, b in twice if a.correct is not None and b.correct is not None]
    return Noise(
        n=len(graded),
        worse=sum(bool(a.correct) and not b.correct for a, b in graded),
        better=sum(bool(b.correct) and not a.correct for a, b in graded),
        differing=sum(divergence(a, b) is not None for a, b in graded),
    )


def divergence(before: ItemRecord, now: ItemRecord) -> Divergence | None:
    """The first difference of two replies, by token where both sides tell them; None for equal replies."""
    if before.token_ids and now.token_ids:
        place = _first_difference(before.token_ids, now.token_ids)
        if place is not None:
            ids = (
                str(ids[place]) if place < len(ids) else "end" for ids in (before.token_ids, now.token_ids)
            )
            return Divergence(place, "token", *ids)
    place = _first_difference(before.text, now.text)
    if place is not None:
        return Divergence(place, "character", before.text[place:][:SNIPPET], now.text[place:][:SNIPPET])
    if before.reasoning_length != now.reasoning_length:
        lengths = before.reasoning_length, now.reasoning_length
        return Divergence(min(lengths), "reasoning", *(f"{length} characters" for length in lengths))
    return None


def _first_difference(before: Sequence[object], now: Sequence[object]) -> int | None:
    if before == now:
        return None
    missing = object()
    pairs = enumerate(zip_longest(before, now, fillvalue=missing))
    return next(place for place, (a, b) in pairs if a != b)


def _of(plan: Plan, records: Sequence[ItemRecord]) -> list[ItemRecord]:
    return [record for record in records if (record.set, record.arm) == (plan.set, plan.arm)]


def _comparison(plan: Plan, records: Sequence[ItemRecord], kept: Sequence[ItemRecord]) -> Comparison:
    now, beside = _side(records, "candidate"), _side(records, "baseline")
    again = _side(records, "baseline_again")
    if again:
        twice = tuple((beside[item], record) for item, record in again.items() if item in beside)
    else:
        repeats = [record for record in records if record.server == "candidate" and record.repeat > 0]
        twice = tuple((now[record.item], record) for record in repeats if record.item in now)
    return Comparison(plan, now, beside or _side(kept, "candidate"), twice, same_day=bool(beside))


def _side(records: Sequence[ItemRecord], server: str) -> dict[str, ItemRecord]:
    return {record.item: record for record in records if record.server == server and record.repeat == 0}


def _graded(side: Side) -> list[Graded]:
    return [Graded(r.item, Grade(r.state), r.outcome == "truncated") for r in side.values()]
