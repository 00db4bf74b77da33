"""What stands behind the verdicts on the sets: rows for people and spreadsheets, and the forest plot.

Knows verdicts and records; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Final

from gates.harness import paired, plot
from gates.harness.paired import ALPHA
from gates.harness.plot import Bar
from gates.harness.stats import wilson
from gates.harness.verdict import Finding, Picture, Table
from gates.quality import compare
from gates.quality.asking import Arm
from gates.quality.decide import SetVerdict
from gates.quality.items import ItemRecord
from gates.quality.mini.sets import HARDER
from gates.quality.sets import fault_of

Reading = Callable[[ItemRecord], float | None]
Floors = Mapping[tuple[str, Arm], float]  # the least share of right answers of a set in an arm

DRIFTS: Final[tuple[tuple[str, Reading], ...]] = (
    ("tokens of the reply", lambda record: record.completion_tokens),
    ("characters of reasoning", lambda record: record.reasoning_length),
    ("tokens of the prompt", lambda record: record.prompt_tokens),
    ("seconds to the first token", lambda record: record.ttft_s),
    ("seconds in all", lambda record: record.seconds),
)
_Z: Final = NormalDist().inv_cdf(0.975)


def tables(verdicts: Sequence[SetVerdict], floors: Floors) -> tuple[Table, ...]:
    """Sets, changed items with both replies, drift of length and time, categories."""
    return (sets(verdicts, floors), changed(verdicts), drift(verdicts), categories(verdicts))


def sets(verdicts: Sequence[SetVerdict], floors: Floors) -> Table:
    """One row a set and arm: shares in per cent, drop with its limit, what could have been seen, endings."""
    header = (
        *(
            "set",
            "arm",
            "verdict",
            "right %",
            "from",
            "to",
            "least %",
            "ordinary %",
            "harder %",
            "before %",
            "pairs",
            "worse",
            "better",
            "dropped",
        ),
        *("drop %", "limit %", "margin %", "p", "would see %", "noise %", "asked twice"),
        *("truncated", "refused", "empty", "lost"),
    )
    return Table("sets", header, tuple(_set_row(verdict, floors) for verdict in verdicts), "Sets", open=True)


def changed(verdicts: Sequence[SetVerdict]) -> Table:
    """One row an item that changed side, or that differs where nothing may, with both replies."""
    header = (
        "set",
        "arm",
        "item",
        "change",
        "first difference",
        "baseline",
        "candidate",
        "why",
        "known fault",
    )
    rows = [row for verdict in verdicts for row in _changed_rows(verdict)]
    return Table("changed-items", header, tuple(rows), "Changed items, both replies side by side")


def drift(verdicts: Sequence[SetVerdict]) -> Table:
    """Means of lengths and times on both sides, over the items that have both, and the change with 95 %."""
    header = ("set", "arm", "what", "items", "baseline", "candidate", "change", "from", "to")
    rows = [
        (verdict.comparison.plan.set, verdict.comparison.plan.arm, *row)
        for verdict in verdicts
        for what, reading in DRIFTS
        if (row := _drift_row(verdict, what, reading))
    ]
    return Table("drift", header, tuple(rows), "Length and time")


def categories(verdicts: Sequence[SetVerdict]) -> Table:
    """One row a category where there are several: shares of right answers on both sides, in per cent."""
    header = ("set", "arm", "category", "pairs", "before %", "now %", "worse", "better", "drop %")
    rows = [row for verdict in verdicts for row in _category_rows(verdict)]
    return Table("categories", header, tuple(rows), "Categories")


def pictures(verdicts: Sequence[SetVerdict]) -> tuple[Picture, ...]:
    """The forest plot of the drops; none when nothing could be compared."""
    bars = [bar for verdict in verdicts if (bar := _bar(verdict))]
    if not bars:
        return ()
    svg = plot.forest(bars, axis="change of the share of right answers; dashed: what a set may lose")
    return (Picture("forest", "Change by set, with 90 % intervals", svg),)


def findings(verdicts: Sequence[SetVerdict]) -> tuple[Finding, ...]:
    """The items that got worse, or differ where nothing may, in the sets that failed."""
    found = []
    for verdict in verdicts:
        if verdict.decision != "fail":
            continue
        measure = "quality.margin_ratio" if verdict.found else "quality.differing_count"
        for item in tuple(verdict.divergences) or verdict.pairs.worse_items:
            before, now = verdict.comparison.before[item], verdict.comparison.now[item]
            where = f"{item} ({verdict.comparison.plan.arm})"
            found.append(Finding(measure, where, before.extracted, _found(now), _parting(before, now)))
    return tuple(found)


def _found(record: ItemRecord) -> str:
    """What was read of a reply, and why it is wrong where the grader says so."""
    return f"{record.extracted} ({record.note})" if record.note else record.extracted


def _set_row(verdict: SetVerdict, floors: Floors) -> tuple[object, ...]:
    one, pairs, found = verdict.comparison, verdict.pairs, verdict.found
    right, graded = verdict.right_now
    low, high = wilson(right, graded)
    ends = Counter(record.outcome for record in one.now.values())
    return (
        *(one.plan.set, one.plan.arm, verdict.decision),
        *(_percent(right / graded if graded else None), _percent(low), _percent(high)),
        _percent(floors.get((one.plan.set, one.plan.arm))),
        *_apart(verdict),
        _share(one.before.values()),
        *(pairs.n, pairs.worse, pairs.better, pairs.dropped),
        *((_percent(found.drop), _percent(found.limit)) if found else (None, None)),
        *(_percent(one.plan.margin), found.p if found else None, _percent(verdict.detectable)),
        *(_percent(verdict.noise.rate if verdict.noise.n else None), verdict.noise.n),
        *(ends["truncated"], ends["refused"], ends["empty"], ends["fault"]),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _share(records: Iterable[ItemRecord]) -> float | None:
    """How much of what was graded is right, in per cent; None where nothing was."""
    graded = [record.correct for record in records if record.correct is not None]
    return _percent(fmean(graded)) if graded else None


def _apart(verdict: SetVerdict) -> tuple[float | None, float | None]:
    """The shares of the ordinary and of the harder items; None twice for a set that has no harder ones."""
    one = verdict.comparison
    kinds = HARDER.get(one.plan.set)
    if not kinds:
        return None, None
    sides = [[r for r in one.now.values() if (r.category in kinds) is harder] for harder in (False, True)]
    return _share(sides[0]), _share(sides[1])


def _changed_rows(verdict: SetVerdict) -> list[tuple[object, ...]]:
    one = verdict.comparison
    named = dict.fromkeys(verdict.pairs.worse_items, "worse") | dict.fromkeys(
        verdict.pairs.better_items, "better"
    )
    named |= {item: "differs" for item in verdict.divergences if item not in named}
    return [
        (
            *(one.plan.set, one.plan.arm, item, change),
            _parting(one.before[item], one.now[item]),
            one.before[item].text,
            one.now[item].text,
            one.now[item].note,
            fault_of(item),
        )
        for item, change in named.items()
    ]


def _parting(before: ItemRecord, now: ItemRecord) -> str:
    place = compare.divergence(before, now)
    return str(place) if place else "the replies are equal"


def _drift_row(verdict: SetVerdict, what: str, reading: Reading) -> tuple[object, ...] | None:
    one = verdict.comparison
    both = [
        (before, now)
        for item, record in one.now.items()
        if item in one.before
        and (before := reading(one.before[item])) is not None
        and (now := reading(record)) is not None
    ]
    old = fmean(before for before, _ in both) if both else 0.0
    if not old:
        return None
    change = paired.clustered([now - before for before, now in both], range(len(both)))
    ends = (change.mean - _Z * change.error, change.mean + _Z * change.error)
    new = fmean(now for _, now in both)
    return (what, len(both), old, new, *(f"{part / old:+.1%}" for part in (change.mean, *ends)))


def _category_rows(verdict: SetVerdict) -> list[tuple[object, ...]]:
    one = verdict.comparison
    by_category: dict[str, list[tuple[bool, bool]]] = {}
    for item, now in one.now.items():
        before = one.before.get(item)
        if before and before.correct is not None and now.correct is not None:
            by_category.setdefault(now.category, []).append((before.correct, now.correct))
    rows: list[tuple[object, ...]] = []
    for category, both in sorted(by_category.items()):
        worse, better = sum(b and not n for b, n in both), sum(n and not b for b, n in both)
        old, new = (_percent(fmean(side)) for side in zip(*both, strict=True))
        drop = _percent((worse - better) / len(both))
        named = f"{category} (harder)" if category in HARDER.get(one.plan.set, ()) else category
        rows.append((one.plan.set, one.plan.arm, named, len(both), old, new, worse, better, drop))
    return rows if len(rows) > 1 else []


def _bar(verdict: SetVerdict) -> Bar | None:
    """The change of one set: minus the drop, between both one-sided limits at the level of its look."""
    found, pairs = verdict.found, verdict.pairs
    if found is None:
        return None
    gain = paired.Pairs(pairs.n, pairs.better, pairs.worse, pairs.dropped)
    change = f"{-found.drop:+.2%}" if found.drop else "unchanged"
    text = f"{verdict.decision}, {change} of {pairs.n}, p {found.p:.2g}"
    return Bar(
        verdict.name,
        verdict.decision,
        -found.drop,
        -found.limit,
        paired.drop_limit(gain, alpha=ALPHA),
        -found.margin,
        text,
    )
