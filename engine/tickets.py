"""What the loop keeps for one request besides its state: where events go, its rule, the times to report.

Knows nothing of plans or tensors.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass

from engine.core import Allowance, CacheKind, EventSink, Request, Timings
from engine.errors import RuleError

RULE_SECONDS = 1.0  # what all rules of a step together may take beyond it; everybody waits for them
MAX_REPLACED = 24  # reluctant ids replaced in one answer; a model that insists may end it


@dataclass(slots=True)
class Ticket:
    """One open request."""

    request: Request
    sink: EventSink
    submitted: float
    started: float | None = None
    first: float | None = None
    moved: float = 0.0  # when its last step was taken in
    cached: int = 0
    kind: CacheKind = CacheKind.COLD
    recalled: int | None = None  # the record that was brought back from disk for it
    generated: int = 0
    steps: int = 0
    rows: int = 0
    replaced: int = 0
    _next: Future[Allowance] | None = None

    def consult(self, taken: tuple[int, ...], aside: Executor) -> None:
        """Let the rule, if there is one, work out what may follow while the next step runs."""
        if self.request.rule is not None:
            self._next = aside.submit(self.request.rule.next, taken)

    def allowance(self, patience_s: float) -> Allowance:
        """What the rule said; raises what it raised, and RuleError when that takes it too many seconds."""
        if self._next is None:
            return Allowance()
        try:
            found = self._next.result(timeout=max(0.0, patience_s))
        except TimeoutError:
            if self._next.cancel():
                raise RuleError("the grammars of other answers left this one no time; ask again") from None
            raise RuleError("the grammar of this answer is too slow to follow; simplify it") from None
        return found if self.replaced < MAX_REPLACED else Allowance(found.forced, found.allowed, found.greedy)

    def timings(self, now: float) -> Timings:
        """Durations up to `now`; phases that were not reached last zero seconds."""
        started = now if self.started is None else self.started
        first = now if self.first is None else self.first
        return Timings(
            prompt_tokens=len(self.request.prompt),
            cached_tokens=self.cached,
            generated_tokens=self.generated,
            queue_s=started - self.submitted,
            prefill_s=first - started,
            decode_s=now - first,
            total_s=now - self.submitted,
            batch_mean=self.rows / self.steps if self.steps else 0.0,
            kind=self.kind,
        )
