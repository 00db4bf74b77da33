"""What a check gathers from one history as it goes, and the claims that more than one gate makes.

Pure; knows the fields that every gate records, and no gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gates.harness import ceiling, counts
from gates.harness.baseline import Baseline
from gates.harness.history import Event, Operation, notes, operations
from gates.harness.rig import FURTHER_ENDED, SETTLED
from gates.harness.stats import Interval
from gates.harness.turns import silence
from gates.harness.verdict import Finding, Measure, measured, worst
from gates.profile import Settings


@dataclass
class Judging:
    """One history under the settings of its gate, and the measures and findings so far."""

    events: Sequence[Event]
    settings: Settings
    baseline: Baseline | None
    measures: list[Measure] = field(default_factory=list, init=False)
    findings: list[Finding] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.asked = operations(self.events)

    def say(
        self,
        measure_id: str,
        value: float | None,
        n: int,
        *,
        interval: Interval | None = None,
        note: str = "",
        estimate: float | None = None,
        judged: str = "",
    ) -> None:
        """Add a measure."""
        before = self.baseline.measures.get(measure_id) if self.baseline else None
        self.measures.append(
            measured(
                self.settings,
                measure_id,
                value,
                n=n,
                interval=interval,
                baseline=before,
                note=note,
                estimate=estimate,
                judged=judged,
            )
        )

    def find(self, measure_id: str, one: Operation, expected: str, found: str) -> None:
        """Add a finding about one request."""
        where = f"{one.invoke.what} {one.get('cell', '')}, {one.invoke.t_s:.1f} s after the start"
        self.findings.append(Finding(measure_id, where, expected, found, str(one.get("text") or "")))

    def refusals(self) -> None:
        """At the ceiling a request is answered or refused with all that a client needs to come again."""
        measure_id = self._named("ceiling_fault_count")
        storm = [one for one in self.asked if one.invoke.what == ceiling.STORM]
        faults = [(one, why) for one in storm if (why := ceiling.wrong(one))]
        self.say(measure_id, len(faults) if storm else None, len(storm))
        for one, why in faults:
            self.find(measure_id, one, "an answer, or 503 with Retry-After and words", why)

    def kept(self, shares: Sequence[float | None]) -> None:
        """The least share of a turn that the next one took from the cache; None where a turn does not say.

        Some servers leave a count of 0 out, so one that is missing is no proof of anything.
        """
        measure_id, known = self._named("cached_ratio"), sum(share is not None for share in shares)
        self.say(measure_id, worst(self.settings, measure_id, shares), known, note=silence(shares))

    def usage(self) -> None:
        """The token counts of every answer can be true."""
        measure_id = self._named("usage_error_ratio")
        answered = [one for one in self.asked if one.outcome == "ok" and "max_tokens" in one.invoke.fields]
        doubts = [(one, why) for one in answered if (why := counts.fault(one))]
        self.say(measure_id, len(doubts) / len(answered) if answered else None, len(answered))
        for one, why in doubts:
            self.find(measure_id, one, "true token counts", why)

    def leftover(self, doubt: str = "") -> None:
        """Requests that were still open when every client had gone, and what the server itself left.

        `doubt` is why nothing left open would prove nothing; empty where it does.
        """
        settled = [one.get("inflight") for one in notes(self.events, SETTLED)]
        left = sum(len(one.get("left", ())) for one in notes(self.events, FURTHER_ENDED))
        known = bool(settled) and settled[-1] is not None
        note = doubt if known else "the server does not count what is open"
        value = settled[-1] + left if known else None
        if not value and doubt:
            value = None
        self.say(self._named("leftover_count"), value, len(settled), note=note)

    def _named(self, name: str) -> str:
        """The id of a measure of the gate whose settings these are."""
        return f"{self.settings.table}.{name}"
