"""The steps of open requests, on the engine's thread alone: let in, computed, drawn, told, ended.

A failure ends only the request that caused it.  Knows no queue of callers and no thread.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from engine.cache.view import ModelRunner
from engine.core import (
    Admission,
    CacheKind,
    Ended,
    Event,
    Finished,
    FinishReason,
    Logits,
    Plan,
    Slice,
    Started,
)
from engine.errors import CapacityError, NumericsError, RuleError
from engine.metrics import Metrics
from engine.pool import StatePool
from engine.sampling import Drawn, draw
from engine.scheduler.scheduler import Scheduler
from engine.shelving import Reading
from engine.states import State
from engine.tickets import RULE_SECONDS, Ticket

log = logging.getLogger("engine.loop")
T = TypeVar("T")


@dataclass(slots=True)
class Stepper:
    """Takes requests from their tickets to their ends.

    Rules work on `aside`; `told` is called whenever sinks were, `gone` with the id of a request whose caller
    does not listen any more.  `ended` counts requests, and `moved` is when a token was computed or a request
    ended last; other threads read both.
    """

    scheduler: Scheduler
    runner: ModelRunner
    pool: StatePool
    metrics: Metrics
    clock: Callable[[], float]
    aside: Executor
    told: Callable[[], None]
    gone: Callable[[str], None]
    tickets: dict[str, Ticket] = field(default_factory=dict)
    ended: int = 0
    moved: float = 0.0
    _untold: deque[tuple[Ticket, Event]] = field(default_factory=deque)

    def accept(self, ticket: Ticket, let_in: Future[None]) -> None:
        """Queue a request; `let_in` has its result at once: None, or the CapacityError that refuses it."""
        heard = let_in.set_running_or_notify_cancel()
        self.tickets[ticket.request.id] = ticket
        try:
            self.scheduler.submit(ticket.request)
        except CapacityError as error:
            self.metrics.add("rejected_live_headroom")
            self._finish(Ended(ticket.request, FinishReason.REFUSED, message=str(error)))
            if heard:
                let_in.set_exception(error)
            return
        if heard:
            let_in.set_result(None)
        self.pool.expect(ticket.request)
        ticket.consult((), self.aside)

    def drop(self, request_id: str, reason: FinishReason, message: str | None = None) -> None:
        """End a request now; unknown and finished ids are ignored."""
        ended = self.scheduler.drop(request_id, reason, message)
        if ended is not None:
            self._finish(ended)

    def stop(self) -> None:
        """End all requests, and tell those who wait."""
        for request_id in list(self.tickets):
            self.drop(request_id, FinishReason.CANCELLED)
        self.hand_out()

    def abandon(self) -> None:
        """Leave nobody waiting, whatever broke."""
        tickets, self.tickets, self.pool.running = self.tickets, {}, {}
        for ticket in tickets.values():  # not through the scheduler: it may be what broke
            self._dismiss(ticket, FinishReason.FAILED, "the engine stopped")
        self.hand_out()

    def execute(self, plan: Plan) -> None:
        """Run one step as planned; what happened in it is told by the next `hand_out`."""
        self.pool.spill(plan.evictions)
        late = {admission.request.id for admission in plan.admissions if not self._enter(admission)}
        self.pool.forget(plan.evictions)
        slices = tuple(piece for piece in plan.slices if piece.sequence not in late)
        if not slices:
            return
        self.hand_out()  # who was let in learns of it before the step
        work = [(self.pool.running[piece.sequence].cache, self.scheduler.tokens(piece)) for piece in slices]
        logits = self._attempt(
            lambda: np.asarray(self.runner.step(work)), tuple(piece.sequence for piece in slices)
        )
        if logits is None:
            return
        decoding = sum(self.tickets[piece.sequence].first is not None for piece in slices)
        self.metrics.add("steps")
        self.metrics.add("decode_steps", min(1, decoding))
        self.metrics.add("decode_rows", decoding)
        rules_end = self.clock() + RULE_SECONDS
        for row, piece in enumerate(slices):
            self._commit(piece, logits[row], rows=len(slices), rules_end=rules_end)

    def _attempt(self, work: Callable[[], T], sequences: tuple[str, ...]) -> T | None:
        """Do work for some sequences.  The only catch-all: a failure ends only the request that caused it.

        One sequence alone is the cause.  Of several, each starts over in steps of its own, which finds the
        cause; a failed step may have left any of its states half advanced, so all are computed again.
        """
        try:
            return work()
        except Exception as error:
            log.exception("event=step_failed sequences=%d", len(sequences))
            message = _blame(error)
        if len(sequences) == 1:
            self.drop(sequences[0], FinishReason.FAILED, message)
            return None
        for sequence in sequences:
            self.scheduler.restart(sequence)
            request = self.tickets[sequence].request
            fresh = self._attempt(functools.partial(self.pool.fresh, request), (sequence,))
            if fresh is not None:
                self.pool.running[sequence] = fresh
        return None

    def _enter(self, admission: Admission) -> bool:
        """Make the state of a request that starts; False when it is not as planned."""
        planned = self.pool.has_source(admission)
        if not planned:
            self.scheduler.restart(admission.request.id)
            admission = Admission(admission.request, CacheKind.COLD)
        state = self._attempt(functools.partial(self.pool.begin, admission), (admission.request.id,))
        if state is not None:
            self._admit(admission, state)
        return planned and state is not None

    def take(self, reading: Reading) -> None:
        """A stored state is read: keep it, and let the request go on that waits for it."""
        name = reading.request.id
        record = self._attempt(lambda: self.pool.recall(reading), (name,))
        if record is not None:
            self.tickets[name].recalled = record

    def _admit(self, admission: Admission, state: State) -> None:
        request = admission.request
        self.pool.running[request.id] = state
        ticket = self.tickets[request.id]
        ticket.started = self.clock()
        recalled = admission.source is not None and admission.source == ticket.recalled
        ticket.cached, ticket.kind = admission.cached, CacheKind.DISK if recalled else admission.kind
        self.metrics.add(f"admits_{ticket.kind.value}")
        self.metrics.add("tokens_prefilled_cached", ticket.cached)
        self._tell(ticket, Started(ticket.cached, ticket.kind))

    def _commit(self, piece: Slice, logits: Logits, *, rows: int, rules_end: float) -> None:
        ticket = self.tickets[piece.sequence]
        if piece.start < len(ticket.request.prompt):
            self.metrics.add("tokens_prefilled_computed", piece.stop - piece.start)
        else:
            ticket.steps += 1
            ticket.rows += rows
        drawn = self._attempt(lambda: self._take_step(piece, ticket, logits, rules_end), (piece.sequence,))
        if drawn is None:
            return
        self.moved = self.clock()
        committed = self.scheduler.commit(piece, tuple(generated.token for generated in drawn.tokens))
        for generated in drawn.tokens[: len(committed.tokens)]:
            self._tell(ticket, generated)
        if ticket.generated and committed.tokens:
            gap = (self.moved - ticket.moved) / len(committed.tokens)
            self.metrics.observe("inter_token", gap, times=len(committed.tokens))
        ticket.moved = self.moved
        ticket.generated += len(committed.tokens)
        self.metrics.add("tokens_decoded", len(committed.tokens))
        if committed.ended is not None:
            self._finish(committed.ended)
        elif committed.tokens:
            ticket.consult(committed.tokens, self.aside)

    def _take_step(self, piece: Slice, ticket: Ticket, logits: Logits, rules_end: float) -> Drawn:
        """Keep the state where it is to be kept, and draw what follows, if anything does."""
        if piece.anchors:
            self.pool.running[piece.sequence].freeze()
        return self._draw(piece, ticket, logits, rules_end) if piece.samples else Drawn(())

    def _draw(self, piece: Slice, ticket: Ticket, logits: Logits, rules_end: float) -> Drawn:
        allowance = ticket.allowance(rules_end - self.clock())
        drawn = draw(logits, ticket.request, allowance, position=piece.stop)
        ticket.replaced += drawn.replaced
        if ticket.first is None:
            ticket.first = self.clock()
        return drawn

    def _finish(self, ended: Ended) -> None:
        ticket = self.tickets.pop(ended.request.id)
        self.pool.leave(ended)
        self._dismiss(ticket, ended.reason, ended.message)

    def _dismiss(self, ticket: Ticket, reason: FinishReason, message: str | None) -> None:
        """Count the end of a request, and tell whoever waits for it."""
        self.moved = self.clock()
        self.ended += 1
        timings = ticket.timings(self.clock())
        self.metrics.ended(reason, timings)
        self._tell(ticket, Finished(reason, timings, message))

    def _tell(self, ticket: Ticket, event: Event) -> None:
        """Keep an event until the next `hand_out`: all of a step are told together."""
        self._untold.append((ticket, event))

    def hand_out(self) -> None:
        """Tell what happened; RuntimeError means the caller's own loop is gone, so its request is ended."""
        if not self._untold:
            return
        while self._untold:  # one by one: a sink that breaks may not keep from others what they wait for
            ticket, event = self._untold.popleft()
            try:
                ticket.sink(event)
            except RuntimeError:
                log.warning("event=caller_gone request=%s", ticket.request.id)
                self.gone(ticket.request.id)
        self.told()


def _blame(error: Exception) -> str:
    """What a client is told of the error that ended its request; never a path or a stack."""
    if isinstance(error, RuleError):
        return str(error)
    if isinstance(error, NumericsError):
        return "the model gave unusable numbers for this request"
    return "the engine failed on this request"
