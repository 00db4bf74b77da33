"""Judges a needle history: recall, decoys, absent needles, order, follow-ups, cache, flatness, honest counts.

Pure: the same events and settings give the same judgement, also years later.
Owns how cells become measures; `grade` and `cases` say what is right, `flatness` what is flat and
`timing` by which times, `usage` which counts are true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.harness.baseline import Baseline
from gates.harness.history import Event, Operation, operations
from gates.harness.stats import Interval, Slope, failure_bound, wilson
from gates.harness.turns import first_cause, silence
from gates.harness.verdict import Judgement, Measure, measured, worst
from gates.needle import flatness, usage
from gates.needle.cases import Case, findings, planned_turns, read_cases, table, unanswered
from gates.needle.timing import times
from gates.profile import Settings

FIRST, ANY = "first", "any"  # in place of the kind of a turn
PAGE_TOKENS: Final = 128  # a server may cut a kept prefix back to a page border
UNTOLD: Final = "no reply says how many of its prompt's tokens came from a cache"


def check(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The measures of the needle gate; a measure whose cells were not asked has no value."""
    asked = operations(events)
    cases = read_cases(asked)
    judge = _Judge(settings, baseline, asked, cases, planned_turns(events))
    doubts = usage.doubts(asked)
    measures = (*judge.recall(), *judge.cache(), *judge.times(), *judge.counts(doubts))
    return Judgement(measures, (table(cases),), findings(cases, doubts))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Cases to measures.

    Where planned cells are missing, a claim fails only if it would with all of them right, else is unknown.
    """

    settings: Settings
    baseline: Baseline | None
    asked: Sequence[Operation]
    cases: Sequence[Case]
    planned: Mapping[str, tuple[str, ...]]  # the kinds of turns of every cell

    def missing(self, what: str) -> int:
        """How many planned turns of this kind (or `FIRST`, or `ANY`) got no reply that can be graded."""
        planned = (_matches(what, kind, n) for kinds in self.planned.values() for n, kind in enumerate(kinds))
        return max(0, sum(planned) - len(self.of(what)))

    @property
    def gap(self) -> str:
        """Why the history does not hold what was planned; empty when it does."""
        if not self.planned:
            return "the record has no plan of cells"
        missing = self.missing(ANY)
        turns = sum(len(kinds) for kinds in self.planned.values())
        return f"{missing} of {turns} planned questions have no reply" if missing else ""

    def of(self, what: str) -> list[Case]:
        """The answered turns of this kind; of a cell that was asked again the first wrong one counts."""
        last: dict[tuple[str, int], Case] = {}
        for case in self.final(what, every_attempt=True):
            turn = (case.cell, case.get("turn"))
            before = last.get(turn)
            last[turn] = before if before and not before.right else case
        return list(last.values())

    def final(self, what: str, *, every_attempt: bool = False) -> list[Case]:
        """The answered turns of this kind, of each cell the last attempt: the one with the right length."""
        matching = [c for c in self.cases if c.grade and _matches(what, c.what, 0 if c.first else 1)]
        if every_attempt:
            return matching
        return list({(case.cell, case.get("turn")): case for case in matching}.values())

    def recall(self) -> list[Measure]:
        """Shares of right answers, and the bound of the failure rate over all first turns."""
        firsts, everything = self.of(FIRST), self.of(ANY)
        failures = sum(not case.right for case in firsts)
        bound = failure_bound(failures, len(firsts) + self.missing(FIRST)) if firsts else None
        note = f"{failures} of {len(firsts)} cells failed"
        strange = sum(bool(case.strangers) for case in everything)
        return [
            self._share("needle.recall_ratio", "recall", good=lambda case: case.named),
            self._share("needle.decoy_ratio", ANY, good=lambda case: not (case.grade and case.grade.foreign)),
            self._share("needle.absent_ratio", "absent"),
            self._share("needle.order_ratio", "order"),
            self._share("needle.followup_ratio", "followup"),
            self._measure("needle.crosstalk_count", strange, len(everything)),
            self._measure("needle.failure_bound_ratio", bound, len(firsts), note=note),
            *self._pooled(failures, len(firsts)),
        ]

    def _pooled(self, failures: int, graded: int) -> list[Measure]:
        """The same over this run and every earlier one whose counts the baseline carries on."""
        kept = self.baseline.measures if self.baseline else {}
        cells = graded + int(kept.get("needle.pooled_cells_count", 0))
        failed = failures + int(kept.get("needle.pooled_failures_count", 0))
        bound = failure_bound(failed, cells + self.missing(FIRST)) if cells else None
        return [
            self._measure("needle.pooled_cells_count", cells, graded),
            self._measure("needle.pooled_failures_count", failed, graded),
            self._measure(
                "needle.pooled_bound_ratio", bound, cells, note=f"{failed} of {cells} cells of all kept runs"
            ),
        ]

    def cache(self) -> list[Measure]:
        """First turns are cold, later ones come from the cache, and that saves their time."""
        firsts = self.final(FIRST)
        seconds = [case for case in self.final(ANY) if not case.first]
        before = {case.cell: case for case in firsts}
        cold = _each(firsts, lambda case: case.get("cached_tokens") / case.get("prompt_tokens"))
        paired = [case for case in seconds if case.cell in before]
        warm = _each(paired, lambda case: _kept(case, before[case.cell]))
        longest = max((case.get("tier_tokens") for case in seconds), default=0)
        far = [case for case in paired if case.get("tier_tokens") == longest]
        noise_s = self.settings.number("ttft_noise_s")
        times = _known(far, lambda case: _time_left(case, before[case.cell], noise_s=noise_s))
        return [
            self._cached("needle.cold_cached_ratio", cold),
            self._cached("needle.followup_cached_ratio", warm),
            self._measure(
                "needle.followup_ttft_ratio",
                median(times) if times else None,
                len(times),
                note=f"first token of later turns against that of the first, at {longest} tokens",
            ),
        ]

    def _cached(self, measure_id: str, shares: Sequence[float | None]) -> Measure:
        """The worst share of a prompt from the cache; some servers leave a count of 0 out."""
        known = sum(share is not None for share in shares)
        note = UNTOLD if shares and not known else silence(shares)
        return self._measure(measure_id, worst(self.settings, measure_id, shares), known, note=note)

    def times(self) -> list[Measure]:
        """Lengths are those of the tiers, and the first-token time does not depend on the depth."""
        firsts = self.final(FIRST)
        settled = [case for case in firsts if not self.gap or self._went_on(case)]
        errors = _known(settled, lambda case: abs(case.get("prompt_tokens") / case.get("tier_tokens") - 1))
        timed = times(self.asked, quiet_host_ratio=self.settings.number("quiet_host_ratio"))
        noise_s, trim = self.settings.number("ttft_noise_s"), self.settings.count("ttft_trim_count")
        noise_ratio = self.settings.number("ttft_noise_ratio")
        spread = flatness.worst(
            [
                (flatness.spread(tier, noise_s=noise_s, noise_ratio=noise_ratio, trim=trim), tier.tokens)
                for tier in timed.tiers
            ]
        )
        slopes = [
            (tier.tokens, found)
            for tier in timed.tiers
            if (found := flatness.slope(tier, tiers=len(timed.tiers)))
        ]
        disturbed = f"{timed.disturbed} of {timed.cells} cells"
        busy = f"the host was busy with other work during {disturbed}: ask again on a quiet host"
        joint = flatness.joint_slope(timed.tiers)
        return [
            self._measure("needle.length_error_ratio", max(errors, default=None), len(errors)),
            self._measure(
                "needle.ttft_spread_ratio",
                spread[0] if spread else None,
                timed.count,
                note=f"largest at {spread[1]} tokens" if spread else busy,
            ),
            self._slope(slopes, joint, timed.count, nothing="" if timed.tiers else busy),
        ]

    def _slope(
        self, slopes: Sequence[tuple[int, Slope]], joint: Slope | None, count: int, *, nothing: str
    ) -> Measure:
        """The slope farthest from 0; none that could fail where all tiers together are too wide to tell."""
        if not slopes or joint is None:
            note = nothing or f"no tier has {flatness.SLOPE_NEEDS} cells"
            return self._measure("needle.ttft_slope_ratio", None, count, note=note)
        tokens, far = max(slopes, key=lambda pair: flatness.distance_from_zero(pair[1]))
        distance = flatness.distance_from_zero(far)
        allowed = self.settings.number("ttft_slope_width_ratio")
        if distance <= self.settings.number("max_ttft_slope_ratio") and flatness.width(joint) > allowed:
            note = f"{_slope_note('over all tiers', joint)}: too wide to tell, ask again on a quiet host"
            return self._measure("needle.ttft_slope_ratio", None, count, slope=joint, note=note)
        note = _slope_note(f"at {tokens} tokens", far)
        return self._measure("needle.ttft_slope_ratio", distance, count, slope=far, note=note)

    def _went_on(self, first: Case) -> bool:
        """Whether the conversation was continued; before that, a text of a wrong length is asked again."""
        return any(
            case.cell == first.cell and case.get("attempt") == first.get("attempt") and not case.first
            for case in self.cases
        )

    def counts(self, doubts: Sequence[usage.Doubt]) -> list[Measure]:
        """Honest usage, replies cut by the token limit, requests without an answer."""
        answered = sum(operation.outcome == "ok" for operation in self.asked)
        cut = sum(case.get("finish_reason") == "length" for case in self.cases)
        lost = [operation for operation in self.asked if unanswered(operation)]
        return [
            self._measure("needle.usage_error_ratio", len(doubts) / answered if answered else None, answered),
            self._measure("needle.truncated_count", cut, len(self.cases)),
            self._measure("needle.unanswered_count", len(lost), len(self.asked), note=first_cause(lost)),
        ]

    def _share(
        self, measure_id: str, what: str, *, good: Callable[[Case], bool] = lambda case: case.right
    ) -> Measure:
        graded = self.of(what)
        if not graded:
            return self._measure(measure_id, None, 0, note="no such question was answered")
        hits, n = sum(good(case) for case in graded), len(graded)
        missing = self.missing(what)
        return self._measure(measure_id, (hits + missing) / (n + missing), n, interval=wilson(hits, n))

    def _measure(
        self,
        measure_id: str,
        value: float | None,
        n: int,
        *,
        interval: Interval | None = None,
        slope: Slope | None = None,
        note: str = "",
    ) -> Measure:
        before = self.baseline.measures.get(measure_id) if self.baseline else None
        note = note or ("" if value is not None else self.gap or "no request shows it")
        measure = measured(
            self.settings,
            measure_id,
            value,
            n=n,
            interval=slope.interval if slope else interval,
            baseline=before,
            note=note,
            estimate=slope.value if slope else None,
            judged="interval's distance from 0" if slope and value is not None else "",
        )
        if self.gap and measure.verdict == "pass":
            return measured(self.settings, measure_id, None, n=n, baseline=before, note=self.gap)
        return measure


def _matches(what: str, kind: str, number: int) -> bool:
    """Whether a turn of this kind and number (0 is the first) is one of `what`."""
    return what in (kind, ANY) or (what == FIRST and number == 0)


def _known(cases: Sequence[Case], ratio: Callable[[Case], float]) -> list[float]:
    """The ratio of every case whose numbers the server reported."""
    return [found for found in _each(cases, ratio) if found is not None]


def _each(cases: Sequence[Case], ratio: Callable[[Case], float]) -> list[float | None]:
    """The ratio of every case; None where the server did not report its numbers."""
    found: list[float | None] = []
    for case in cases:
        try:
            found.append(ratio(case))
        except (TypeError, ZeroDivisionError):  # a count or a time is missing or 0
            found.append(None)
    return found


def _kept(second: Case, first: Case) -> float:
    """The share of the first turn's prompt that the second turn took from the cache, a page forgiven."""
    kept = float(second.get("cached_tokens"))
    return min(1.0, (kept + PAGE_TOKENS) / int(first.get("prompt_tokens"))) if kept else 0.0


def _time_left(second: Case, first: Case, *, noise_s: float) -> float:
    """The first-token time of the second turn, less what the host may add, over that of the first."""
    return float(max(0.0, second.get("first_token_s") - noise_s) / first.get("first_token_s"))


def _slope_note(where: str, slope: Slope) -> str:
    low, high = slope.interval
    return f"{where} the last depth costs {slope.value:+.1%} ({low:+.1%} to {high:+.1%}) of the first"
