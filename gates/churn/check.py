"""Judges a churn history: recall, cache, other clients' codes, memory, the ceiling, manners.

Pure: the same events and settings give the same judgement, also years later.
Owns how cases become measures; `cases` says what is right, `drift` what memory does, `ceiling` what a full
server may say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gates.churn import pictures
from gates.churn.cases import (
    AFTER,
    BEFORE,
    COLD,
    DEEP,
    ROUND,
    SHORT,
    TWIN,
    Case,
    read_cases,
    rounds_table,
    unanswered,
)
from gates.churn.drift import Drift, Sample, drift
from gates.churn.drive import BEGAN, ENDED, PLANNED
from gates.churn.plan import LEAVES
from gates.churn.watch import SEEN
from gates.harness import ceiling
from gates.harness.baseline import Baseline
from gates.harness.history import Event, Operation, notes
from gates.harness.judging import Judging
from gates.harness.stats import wilson
from gates.harness.turns import PAGE_TOKENS, first_cause, kept_share, last_tries, on_quiet_host
from gates.harness.verdict import Judgement
from gates.profile import Settings

NEAR_FULL = 0.9  # of the budget
MIB = 2**20


def check(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The measures of the churn gate; a measure whose requests were not asked has no value."""
    judge = _Judge(events, settings, baseline)
    judge.deep()
    judge.clients()
    judge.memory()
    judge.ceiling()
    judge.manners()
    rounds = last_tries(judge.asked, ROUND)
    table = rounds_table(rounds, {case.operation.invoke.op: case for case in judge.cases})
    drawn = pictures.pictures(
        judge.samples(), judge.span, rounds, last_tries(judge.asked, COLD), judge.storms
    )
    return Judgement(tuple(judge.measures), (table,), tuple(judge.findings), drawn)


@dataclass
class _Judge(Judging):
    """The claims of this gate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cases = read_cases(self.asked)
        self.storms = ceiling.spans(self.events)

    @property
    def span(self) -> tuple[float, float]:
        """From when to when the server was churned; (0, 0) when the record does not say."""
        began, ended = list(notes(self.events, BEGAN)), list(notes(self.events, ENDED))
        return (began[0].t_s, ended[-1].t_s) if began and ended else (0.0, 0.0)

    def samples(self) -> list[Sample]:
        """What the server held, host and device together, while it was churned."""
        start, end = self.span
        seen = [one for one in notes(self.events, SEEN) if start <= one.t_s <= end]
        wants_device = self.settings.switch("device_memory")
        found = []
        for one in seen:
            parts = [one.get("anon_bytes"), one.get("swap_bytes")]
            parts += [one.get("device_bytes")] if wants_device else []
            if None not in parts:
                found.append(Sample(one.t_s - start, sum(parts)))
        return found

    def deep(self) -> None:
        """Every round is exact, from the cache, fast, and the deep conversation was never evicted."""
        planned = next((note.get("rounds") for note in notes(self.events, PLANNED)), 0)
        rounds = last_tries(self.asked, ROUND)
        answers = [case for case in self.cases if case.what == ROUND]
        right = sum(case.right for case in answers)
        self.say(
            "churn.recall_ratio",
            right / planned if planned and answers else None,
            len(answers),
            interval=wilson(right, len(answers)),
        )
        over = self.span[1] > 0.0  # a run that was cut off would have asked for more
        self.say("churn.rounds_count", len(answers) if over else None, planned)
        self._misses("churn.recall_ratio", (case for case in answers if not case.right))
        firsts = [one for one in last_tries(self.asked, DEEP) if one.outcome == "ok"]
        lengths = [
            one.get("prompt_tokens") / one.get("planned_tokens") for one in firsts if one.get("prompt_tokens")
        ]
        self.say("churn.length_error_ratio", abs(lengths[0] - 1) if lengths else None, len(lengths))
        turns = [*firsts, *(one for one in rounds if one.outcome == "ok")]
        self.kept([kept_share(now, before) for before, now in pairwise(turns)])
        self._warm_time(rounds)
        self._evicted()

    def _warm_time(self, rounds: Sequence[Operation]) -> None:
        """The slowest round against the fastest cold control, where the host was not busy with other work."""
        colds = [one.get("first_token_s") for one in last_tries(self.asked, COLD) if one.get("first_token_s")]
        answered = [one for one in rounds if one.get("first_token_s")]
        most = self.settings.number("quiet_host_ratio")
        timed = [one.get("first_token_s") for one in answered if on_quiet_host(one, most)]
        note = "no cold control was answered"
        value = None
        if colds and 2 * len(timed) < len(answered):
            note = (
                f"the host was busy with other work in {len(answered) - len(timed)} of {len(answered)} rounds"
            )
        elif colds and timed:
            value = max(timed) / min(colds)
            note = f"slowest {max(timed):.2f} s, median {median(timed):.2f} s, cold {min(colds):.2f} s"
        self.say("churn.warm_ttft_ratio", value, len(timed), note=note)

    def _evicted(self) -> None:
        seen = [one.get("pinned_evictions") for one in notes(self.events, SEEN)]
        known = [count for count in seen if count is not None]
        value = max(known) - known[0] if known else None
        self.say(
            "churn.pinned_evicted_count", value, len(known), note="" if known else "the server counts none"
        )

    def clients(self) -> None:
        """Short clients get right answers, nobody gets another's, and the sample is what it was."""
        short = [case for case in self.cases if case.what in SHORT]
        right = sum(case.right for case in short)
        self.say(
            "churn.client_ratio",
            right / len(short) if short else None,
            len(short),
            interval=wilson(right, len(short)) if short else None,
        )
        self._misses("churn.client_ratio", (case for case in short if not case.right))
        strange = [case for case in self.cases if case.strangers]
        self.say("churn.crosstalk_count", len(strange) if self.cases else None, len(self.cases))
        for case in strange:
            found = f"a code of another conversation: {', '.join(case.strangers)}"
            self.find("churn.crosstalk_count", case.operation, "its own code", found)
        self._tenants()
        self._sample()

    def _tenants(self) -> None:
        """What a tenant asks first is not in its cache, whoever asked it before."""
        if self.settings.count("tenants") < 2:
            self.say("churn.tenant_leak_count", 0, 0, note="this profile asks as one tenant only")
            return
        twins = [one for one in self.asked if one.invoke.what == TWIN and one.outcome == "ok"]
        told = [one for one in twins if one.get("cached_tokens") is not None]
        leaks = [one for one in told if one.get("cached_tokens") > PAGE_TOKENS // 2]
        known = leaks or (twins and told == twins)  # a twin without a count may be the one that leaked
        note = "" if told == twins else f"{len(told)} of {len(twins)} replies tell what came from the cache"
        self.say("churn.tenant_leak_count", len(leaks) if known else None, len(twins), note=note)
        for one in leaks:
            found = (
                f"{one.get('cached_tokens')} of {one.get('prompt_tokens')} tokens from another tenant's cache"
            )
            self.find("churn.tenant_leak_count", one, "nothing from the cache", found)

    def _sample(self) -> None:
        before = {case.get("cell"): case for case in self.cases if case.what == BEFORE}
        after = {case.get("cell"): case for case in self.cases if case.what == AFTER}
        both = [(case, after[cell]) for cell, case in before.items() if cell in after]
        whole = len(both) == self.settings.count("sample_items") > 0
        drop = sum(old.right - new.right for old, new in both) / len(both) if whole else None
        note = (
            "" if whole else f"{len(both)} of {self.settings.count('sample_items')} were answered both times"
        )
        self.say("churn.accuracy_drop_ratio", drop, len(both), note=note)
        altered = [new for old, new in both if old.get("text") != new.get("text")]
        self.say("churn.altered_count", len(altered) if whole else None, len(both), note=note)
        for new in altered:
            said = str(before[new.get("cell")].get("text"))
            self.find("churn.altered_count", new.operation, f"the same as before: {said}", "another answer")

    def memory(self) -> None:
        """Memory does not grow: the slope is below its limit, and the last quarter is like the first."""
        samples, (began_s, ended_s) = self.samples(), self.span
        found = drift(samples, span_s=ended_s - began_s, warm_up=self.settings.number("warm_up_ratio"))
        if found is None:
            parts = "host and device memory" if self.settings.switch("device_memory") else "memory"
            note = f"the {parts} of the server's processes was seen {len(samples)} times, which is too seldom"
            note += " or not from the first quarter of the churn to the last"
            self.say("churn.memory_slope_bytes", None, len(samples), note=note)
            self.say("churn.memory_growth_ratio", None, len(samples), note=note)
            return
        last = samples[-1].held_bytes / MIB
        self.say("churn.memory_growth_ratio", found.quarters, found.n, note=f"{last:.0f} MiB at the end")
        self._slope(found)

    def _slope(self, found: Drift) -> None:
        low, high = found.interval
        limit = self.settings.number("max_memory_slope_bytes")
        note = f"{found.slope / MIB:+.3f} MiB a minute, 95 % from {low / MIB:+.3f} to {high / MIB:+.3f}"
        value, judged = None, ""
        if high <= limit:
            value, judged = high, "upper end"
        elif low > limit:
            value, judged = low, "lower end"
        else:
            note += ": too wide to tell, churn for longer or on a quiet host"
        self.say(
            "churn.memory_slope_bytes",
            value,
            found.n,
            interval=found.interval,
            note=note,
            estimate=found.slope,
            judged=judged,
        )

    def ceiling(self) -> None:
        """At the ceiling a request is answered or refused with all that a client needs to come again."""
        self.refusals()
        turned = sum(ceiling.refused(one) for one in self.asked)
        seen = [(one.get("kv_used_bytes"), one.get("kv_budget_bytes")) for one in notes(self.events, SEEN)]
        full = sum(used >= NEAR_FULL * budget for used, budget in seen if budget and used is not None)
        note = f"{turned} refusals, {full} moments with a budget that was nearly full"
        reached = turned + full or None  # a storm that met no ceiling says nothing about it
        storm = sum(one.invoke.what == ceiling.STORM for one in self.asked)
        self.say("churn.ceiling_count", reached, storm, note=note)

    def manners(self) -> None:
        """Nobody is left without an answer, counts are true, bad requests are refused, nothing stays open."""
        good = [one for one in self.asked if "max_tokens" in one.invoke.fields]
        lost = [one for one in good if unanswered(one, self.storms)]
        self.say("churn.unanswered_count", len(lost), len(good), note=first_cause(lost))
        for one in lost:
            self.find("churn.unanswered_count", one, "an answer", f"{one.get('error')}: {one.get('message')}")
        answered = [one for one in good if one.outcome == "ok"]
        empty = [one for one in answered if not str(one.get("text") or "").strip()]
        self.say("churn.empty_count", len(empty), len(answered))
        for one in empty:
            self.find("churn.empty_count", one, "an answer with a text", "HTTP 200 with an empty one")
        self.usage()
        self._malformed()
        went = {one.invoke.what for one in self.asked if one.outcome == "ok"}
        absent = ", ".join(kind for kind in LEAVES if kind not in went)
        self.leftover(doubt=f"no client did this: {absent}" if absent else "")

    def _malformed(self) -> None:
        sent = [one for one in self.asked if one.invoke.what == "malformed"]
        taken = [one for one in sent if not 400 <= (one.get("status") or 0) < 500]
        self.say("churn.malformed_fault_count", len(taken) if sent else None, len(sent))
        for one in taken:
            found = (
                f"HTTP {one.get('status')}"
                if one.get("status")
                else f"{one.get('error')}: {one.get('message')}"
            )
            self.find("churn.malformed_fault_count", one, f"HTTP 4xx for {one.get('sent')}", found)

    def _misses(self, measure_id: str, wrong: Iterable[Case]) -> None:
        for case in wrong:
            wanted = f"{', '.join(case.get('expected'))} for the {case.get('key')}"
            self.find(measure_id, case.operation, wanted, case.grade.found)
