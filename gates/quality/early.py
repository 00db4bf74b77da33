"""Early stop: items are asked in waves that end at a look, and a set whose verdict stands is asked no more.

Pure, but for what it is given: asks and records in, names of settled sets out.  Knows no server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gates.harness import spending
from gates.harness.history import Event, notes
from gates.quality import compare, decide
from gates.quality.answers import Ask
from gates.quality.items import ItemRecord
from gates.quality.plan import QualityPlan

SETTLED: Final = "set_settled"  # a remark: a set in an arm whose verdict stands, how many items it is spared

Group = tuple[Ask, ...]


def waves(groups: Iterable[Group], plan: QualityPlan) -> list[list[Group]]:
    """The groups by the look that their items complete, in the order given; repeats come first."""
    totals = {part.name: part.items for part in plan.parts}
    found: list[list[Group]] = [[] for _ in range(plan.looks)]
    seen: Counter[str] = Counter()
    for group in groups:
        name = group[0].part.name
        if group[0].repeat:
            found[0].append(group)
            continue
        look = spending.look_of(seen[name], totals[name], looks=plan.looks)
        found[min(look, plan.looks - 1)].append(group)
        seen[name] += 1
    return found


def settled(
    plan: QualityPlan, records: Sequence[ItemRecord], kept: Sequence[ItemRecord], *, look: int
) -> Mapping[str, int]:
    """The sets in their arms whose verdict stands at this look, and how many items each is spared."""
    plans = [compare.Plan(part.set, part.arm, part.items, part.margin, plan.bounds) for part in plan.parts]
    return {
        one.plan.name: one.plan.items - spending.items_of(look, one.plan.items, looks=plan.looks)
        for one in compare.comparisons(plans, records, kept)
        if len(one.now) == spending.items_of(look, one.plan.items, looks=plan.looks)
        and decide.settled(one, looks=plan.looks, family=len(plans))
    }


def spared(events: Sequence[Event]) -> int:
    """How many planned items were not asked because the verdict on their set stood without them."""
    return sum({note.get("set"): int(note.get("spared", 0)) for note in notes(events, SETTLED)}.values())
