"""What happens in one simulated run of the engine, drawn from a seed; it can be replayed and shrunk.

A scenario is limits, visitors with all their habits, and the steps that break.  Its text is Python again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from engine.scheduler.scheduler import SchedulerLimits

PLENTY = 4096
PAGES = (12, 30, PLENTY)  # the least is too few for the longest prompts
Fault = Literal["none", "poison", "nan", "rule"]
Rule = Literal["none", "forced", "bounded", "reluctant"]
Leaving = Literal["stays", "cancels", "vanishes"]


@dataclass(frozen=True, slots=True)
class Visitor:
    """One request and the manners of its caller.

    `fault`: its own step breaks, its logits are NaN, or its rule breaks, always or once it has tokens.
    `leaves_after`: events it takes before it leaves; 0 leaves right after submitting, -1 in the next turn.
    `pace`: turns it needs to read one event; it leaves when `backlog` events wait.
    `follows`: it asks what the visitor so many places before it asked, and waits for that prompt; 0: nobody.
    """

    at: int = 0
    family: int = 0
    length: int = 1
    budget: int = 1
    temperature: float = 0.0
    seed: int = 0
    stops: bool = False
    reuse: bool = False
    rule: Rule = "none"
    fault: Fault = "none"
    leaving: Leaving = "stays"
    leaves_after: int = 0
    pace: int = 0
    backlog: int = 1000
    follows: int = 0

    @property
    def prompt(self) -> tuple[object, ...]:
        """What makes its prompt: those of the same begin and end alike."""
        return self.family, self.length, self.fault in ("poison", "nan") and self.fault


@dataclass(frozen=True, slots=True)
class Scenario:
    """One whole run; `faults` are numbers of steps and of new states that fail, `closes_at` a turn.

    `pages` of the cache: with few of them records must yield and requests are refused.
    `budgets`: from a turn on only so many of them may be used.
    """

    limits: SchedulerLimits
    visitors: tuple[Visitor, ...] = ()
    faults: frozenset[int] = frozenset()
    closes_at: int | None = None
    pages: int = PLENTY
    budgets: tuple[tuple[int, int], ...] = ()

    @property
    def tight(self) -> bool:
        """Memory may be short."""
        return self.pages < PLENTY or bool(self.budgets)


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = random.Random(seed)
    limits = SchedulerLimits(
        context=draw.choice((30, 60)),
        max_sequences=draw.randint(1, 4),
        queue_depth=draw.randint(0, 4),
        prefill_chunk=draw.choice((3, 8, 20)),
        prefill_chunk_live=draw.choice((1, 2, 6)),
        anchor_every=draw.choice((4, 9, 100)),
        max_records=draw.randint(0, 3),
        tranche=draw.choice((32768, 3, 8)),
    )
    pages = draw.choice(PAGES)
    if draw.random() < 0.05:
        return Scenario(limits, _flood(draw, limits), pages=pages)
    spread = draw.choice((1, 6, 20))
    calm = draw.random() < 0.3  # nothing breaks and nobody leaves: what is left must be in perfect order
    visitors: list[Visitor] = []
    for _ in range(draw.randint(1, 9)):
        visitors.append(_visitor(draw, limits, spread, calm=calm))
        if draw.random() < 0.2:
            visitors += _followers(draw, visitors[-1])
    faults = frozenset(draw.randrange(40) for _ in range(draw.choice((0, 0, 0, 1, 3)) * (not calm)))
    closes = draw.randrange(1, 30) if not calm and draw.random() < 0.1 else None
    budgets = tuple((draw.randrange(25), draw.choice((6, 12, 30))) for _ in range(draw.choice((0, 0, 1, 3))))
    return Scenario(limits, tuple(visitors), faults, closes, pages, budgets)


def _followers(draw: random.Random, leader: Visitor) -> list[Visitor]:
    """More answers to the prompt of a visitor, each with habits of its own."""
    return [
        replace(leader, follows=1 + index, seed=draw.randrange(5), temperature=draw.choice((0.0, 1.0)))
        for index in range(draw.randint(1, 3))
    ]


def _flood(draw: random.Random, limits: SchedulerLimits) -> tuple[Visitor, ...]:
    """One long prompt, and in every turn another whose prompt is just what a step takes."""
    long = Visitor(length=limits.context - 5, budget=2)
    first = draw.randrange(3)
    others = [Visitor(at=first + at, length=limits.prefill_chunk, budget=1, family=1) for at in range(25)]
    return (long, *others)


def _visitor(draw: random.Random, limits: SchedulerLimits, spread: int, *, calm: bool) -> Visitor:
    long = draw.random() < 0.3
    habits = Visitor(
        at=draw.randrange(spread),
        family=draw.randrange(3),
        length=draw.randint(limits.context // 2, limits.context - 1) if long else draw.randint(1, 12),
        budget=draw.choice((0, 1, 2, 5, 9, 100)),
        temperature=draw.choice((0.0, 0.0, 1.0)),
        seed=draw.randrange(5),
        stops=draw.random() < 0.4,
        reuse=draw.random() < 0.7,
        rule=draw.choice(("none", "none", "none", "forced", "bounded", "reluctant")),
    )
    if calm:
        return habits
    return replace(
        habits,
        fault=draw.choice(("none",) * 12 + ("poison", "nan", "rule")),
        leaving=draw.choice(("stays", "stays", "cancels", "vanishes")),
        leaves_after=draw.randint(-1, 6),
        pace=draw.choice((0, 0, 0, 2, 5)),
        backlog=draw.choice((1000, 3)),
    )


def shrink(found: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """The smallest scenario reached that still fails, by leaving things out and making numbers plain."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(found):
            if fails(candidate):
                found, smaller = candidate, True
                break
    return found


def _simpler(found: Scenario) -> Iterator[Scenario]:
    """Scenarios with a little less in them, the boldest cuts first."""
    visitors = found.visitors
    for size in (len(visitors) // 2, 1):
        for start in range(0, len(visitors), size or 1):
            yield replace(found, visitors=visitors[:start] + visitors[start + (size or 1) :])
    for fault in sorted(found.faults):
        yield replace(found, faults=found.faults - {fault})
    if found.closes_at is not None:
        yield replace(found, closes_at=None)
    for change in found.budgets:
        yield replace(found, budgets=tuple(kept for kept in found.budgets if kept != change))
    for index, visitor in enumerate(visitors):
        for plain in _plainer(visitor):
            yield replace(found, visitors=(*visitors[:index], plain, *visitors[index + 1 :]))


def _plainer(visitor: Visitor) -> Iterator[Visitor]:
    default = Visitor()
    flat = ("rule", "fault", "leaving", "pace", "reuse", "stops", "temperature", "seed", "family", "at")
    for name in (*flat, "follows"):
        if getattr(visitor, name) != getattr(default, name):
            yield replace(visitor, **{name: getattr(default, name)})
    for name in ("length", "budget"):
        value = getattr(visitor, name)
        for less in (value // 2, value - 1):
            if getattr(default, name) <= less < value:
                yield replace(visitor, **{name: less})
