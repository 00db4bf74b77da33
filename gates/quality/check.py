"""Judges the graded items of a run: no set lost more than its margin, on enough evidence, or unknown.

Pure: the same records, settings and baseline give the same judgement, also years later, and whether one run
asked the items or several whose records were merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from gates.errors import CheckError
from gates.harness.baseline import Baseline
from gates.harness.history import Event, notes
from gates.harness.stats import Interval, wilson
from gates.harness.verdict import Judgement, Measure, measured
from gates.profile import Settings
from gates.quality import compare, decide, items, tables, traffic
from gates.quality.asking import Arm
from gates.quality.compare import Plan
from gates.quality.decide import SetVerdict
from gates.quality.items import ItemRecord
from gates.quality.plan import bounds, parts
from gates.quality.traffic import SETS_PLANNED

ABOVE_ONE: Final = math.nextafter(1, 2)
NOTHING_TWICE: Final = "nothing was asked twice of the same build, so nobody knows its noise"


def check(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The measures of the quality gate: of the comparison with a baseline, and of the traffic itself."""
    said, seen = compared(events, settings, baseline), traffic.judge(events, settings)
    return replace(said, measures=(*said.measures, *seen.measures), findings=(*said.findings, *seen.findings))


def compared(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The measures of the comparison, from the graded items among the events."""
    kept = items.kept(baseline)
    return judgement(planned(events, settings), traffic.records_of(events), kept, settings)


def planned(events: Sequence[Event], settings: Settings) -> tuple[Plan, ...]:
    """What the run was to compare, with the margins of the profile; CheckError where it names no such set."""
    margins = {(part.set, part.arm): part.margin for part in parts(settings)}
    counts: dict[tuple[str, Arm], int] = {}
    for remark in notes(events, SETS_PLANNED):
        for name, arms in remark.get("items", {}).items():
            counts |= {(name, arm): int(arms[arm]) for arm in get_args(Arm) if arm in arms}
    for name, arm in counts.keys() - margins.keys():
        raise CheckError(f"the record has items of '{name}' ({arm}), which the profile does not ask")
    within = bounds(settings)
    return tuple(Plan(name, arm, count, margins[name, arm], within) for (name, arm), count in counts.items())


def judgement(
    plans: Sequence[Plan], records: Sequence[ItemRecord], kept: Sequence[ItemRecord], settings: Settings
) -> Judgement:
    """The judgement over planned sets: records of this run (each item once), and those of the baseline."""
    merged = items.merged([records])
    verdicts = decide.judge(compare.comparisons(plans, merged, kept), looks=settings.count("looks"))
    measures = _Measures(settings, verdicts)
    claims = (measures.margins(), measures.bits(), measures.noise(), measures.detectable(), measures.scores())
    found = tables.findings(verdicts)
    floors = {(part.set, part.arm): part.min_score for part in parts(settings)}
    return Judgement(claims, tables.tables(verdicts, floors), found, tables.pictures(verdicts))


@dataclass(frozen=True, slots=True)
class _Measures:
    """Verdicts on sets to measures of the registry."""

    settings: Settings
    verdicts: Sequence[SetVerdict]

    def margins(self) -> Measure:
        """The largest possible drop of a set over its margin; above 1 where a set failed."""
        tried = [verdict for verdict in self.verdicts if verdict.comparison.plan.margin > 0]
        failed = any(verdict.decision == "fail" for verdict in tried)
        counted = [v.found for v in tried if v.found and (v.decision == "fail" or not failed)]
        worst = max((found.limit / found.margin for found in counted), default=0.0)
        value = max(worst, ABOVE_ONE) if failed else worst
        return self._claim("quality.margin_ratio", value, tried, absent="no set of this profile has a margin")

    def bits(self) -> Measure:
        """Replies that differ from the baseline where none may."""
        strict = [verdict for verdict in self.verdicts if verdict.comparison.plan.margin <= 0]
        differing = sum(len(verdict.divergences) for verdict in strict if verdict.decision == "fail")
        absent = "no set of this profile has a margin of 0"
        return self._claim("quality.differing_count", float(differing), strict, absent=absent)

    def noise(self) -> Measure:
        """The share of items that changed side when the same build was asked twice, all sets pooled."""
        noises = [verdict.noise for verdict in self.verdicts]
        n, changed = sum(noise.n for noise in noises), sum(noise.worse + noise.better for noise in noises)
        differing = sum(noise.differing for noise in noises)
        note = f"{changed} of {n} items changed side, {differing} replies differed" if n else NOTHING_TWICE
        interval = wilson(changed, n) if n else None
        return self._measure("quality.noise_ratio", changed / n if n else None, n, note, interval)

    def detectable(self) -> Measure:
        """The smallest drop that would have been seen, over its margin, of the set that sees least."""
        found = [
            (v.detectable / v.comparison.plan.margin, v) for v in self.verdicts if v.detectable is not None
        ]
        value = max((ratio for ratio, _ in found), default=None)
        note = "; ".join(f"{v.name} {v.detectable:.2%}" for _, v in found) or "no set has pairs to compare"
        return self._measure("quality.detectable_ratio", value, sum(v.pairs.n for _, v in found), note)

    def scores(self) -> Measure:
        """The lowest share of right answers of a set, with its interval."""
        shares = [(right / n, right, n, v) for v in self.verdicts for right, n in [v.right_now] if n]
        if not shares:
            return self._measure("quality.score_ratio", None, 0, "no item was graded")
        value, right, n, _ = min(shares, key=lambda share: share[0])
        note = "; ".join(f"{v.name} {share:.1%}" for share, _, _, v in shares)
        return self._measure("quality.score_ratio", value, n, note, wilson(right, n))

    def _claim(
        self, measure_id: str, value: float, verdicts: Sequence[SetVerdict], *, absent: str
    ) -> Measure:
        """A claim about sets: their words as its note; no value where one is unknown and none failed."""
        decisions = {verdict.decision for verdict in verdicts}
        note = _said(verdicts) or absent
        if "unknown" in decisions and "fail" not in decisions:
            alone = all(v.incomparable for v in verdicts if v.decision == "unknown")
            pairs = 0 if alone else max(1, sum(v.pairs.n for v in verdicts))
            return self._measure(measure_id, None, pairs, note)
        if not self.verdicts:
            return self._measure(measure_id, None, 0, "the record does not say which sets were to be asked")
        return self._measure(measure_id, value, sum(v.pairs.n for v in verdicts), note)

    def _measure(
        self, measure_id: str, value: float | None, n: int, note: str, interval: Interval | None = None
    ) -> Measure:
        return measured(self.settings, measure_id, value, n=n, interval=interval, note=note)


def _said(verdicts: Iterable[SetVerdict]) -> str:
    """Every set in words, failed ones first; several for which the same is said stand behind it."""
    names: dict[tuple[int, str], list[str]] = {}
    for verdict in verdicts:
        rank = ("fail", "unknown", "pass").index(verdict.decision)
        names.setdefault((rank, f"{verdict.decision}, {verdict.reason}"), []).append(verdict.name)
    return "; ".join(_sets(names[key], key[1]) for key in sorted(names, key=lambda key: key[0]))


def _sets(names: Sequence[str], said: str) -> str:
    return f"{names[0]}: {said}" if len(names) == 1 else f"{said} ({', '.join(names)})"
