"""The door of the engine: submit, cancel, stats; one thread runs one step at a time.

Owns the states of running and kept sequences and the events a caller sees.
Decides nothing (the scheduler does) and computes nothing (the runner does).
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engine.banks import Bank, survey
from engine.cache.shelf import Shelf, ShelfStats
from engine.cache.view import ModelRunner
from engine.core import (
    Admission,
    CacheKind,
    Ended,
    Event,
    EventSink,
    Eviction,
    Finished,
    FinishReason,
    Logits,
    Plan,
    Request,
    Slice,
    Started,
)
from engine.errors import (
    CapacityError,
    ContextLengthError,
    NotReadyError,
    NumericsError,
    RequestError,
    RuleError,
)
from engine.metrics import Metrics
from engine.sampling import Drawn, draw
from engine.scheduler.memory import MemoryStats
from engine.scheduler.scheduler import Scheduler, SchedulerLimits
from engine.shelving import Reading, Shelving
from engine.states import Origin, State
from engine.tickets import RULE_SECONDS, Ticket

log = logging.getLogger("engine.loop")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the engine is doing now and what it did since it started."""

    running: int
    queued: int
    records: int
    memory: MemoryStats
    device_bytes: int  # that the allocator of the device holds; 0 on a CPU
    shelf: ShelfStats | None  # None when nothing is stored on disk
    counters: dict[str, int]


Command = Callable[[], None]


class Engine:
    """Runs requests on a runner; every method may be called from any thread.

    A sink is called on the engine's thread: Started, then Generated, then one Finished; it must not block.
    `told` is called there too, whenever sinks were.
    Token rules work on `aside`, beside a step; None makes two threads for them.
    With `threaded` = False there is no engine thread, and whoever made the engine calls `turn`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        limits: SchedulerLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        aside: Executor | None = None,
        threaded: bool = True,
        shelf: Shelf | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self._told = told
        self.metrics = Metrics(clock)
        self._runner = runner
        self._clock = clock
        self._scheduler = Scheduler(limits, runner.ledger)
        self._memory = self._scheduler.memory.stats()  # of the last turn: other threads read it
        self._states: dict[str, State] = {}
        self._kept: dict[int, State] = {}
        self._tickets: dict[str, Ticket] = {}
        self._untold: deque[tuple[Ticket, Event]] = deque()
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._shelving: Shelving | None = None
        if shelf is not None:
            self._shelving = Shelving(
                shelf, runner, self._scheduler, metrics=self.metrics, arrived=self._when_read
            )
        self._lock = threading.Lock()
        self._open = 0  # requests submitted and not finished; guarded by the lock
        self._closing = False
        self._stopped = False
        self._moved = clock()  # when a token was computed or a request ended last, or the first one came
        self._aside = aside or ThreadPoolExecutor(2, thread_name_prefix="rules")
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    @property
    def accepting(self) -> bool:
        """New requests are taken: it is not closing, and nothing ended its thread."""
        return not self._closing

    @property
    def stalled_s(self) -> float:
        """Seconds in which no token moved although a request is open; 0 when none is."""
        with self._lock:
            return self._clock() - self._moved if self._open else 0.0

    def submit(self, request: Request, sink: EventSink) -> Future[None]:
        """Queue a request; the result is there once it is let in, before the next step.

        Raises at once, before any event: RequestError for an empty prompt, ContextLengthError for one that
        does not fit, CapacityError when the queue is full, NotReadyError when the engine is closing.  Where
        there is no memory for it, the result is a CapacityError, and the only event says so too.
        """
        if not request.prompt:
            raise RequestError("the prompt is empty; send at least one token", param="prompt")
        if len(request.prompt) >= self.limits.context:
            self.metrics.reject("too_long")
            raise ContextLengthError(prompt_tokens=len(request.prompt), context_tokens=self.limits.context)
        with self._lock:
            if self._closing:
                raise NotReadyError("the server is shutting down; send the request to another one")
            if self._open >= self.limits.max_sequences + self.limits.queue_depth:
                self.metrics.reject("queue_depth")
                raise CapacityError(
                    f"{self._open} requests are running or waiting, which is the limit; try again soon"
                )
            if self._open == 0:
                self._moved = self._clock()
            self._open += 1
            self.metrics.add("requests_started")
            ticket = Ticket(request, sink, self._clock())
            let_in: Future[None] = Future()
            # Under the lock, so that whoever closes the door finds it in the inbox, and ends it.
            self._inbox.put(lambda: self._accept(ticket, let_in))
        return let_in

    def cancel(self, request_id: str) -> None:
        """End a request at the next step boundary; unknown and finished ids are ignored."""
        self._inbox.put(lambda: self._drop(request_id, FinishReason.CANCELLED))

    def conclude(self, request_id: str) -> None:
        """End a request whose answer is complete before its tokens are; it counts as completed."""
        self._inbox.put(lambda: self._drop(request_id, FinishReason.STOP))

    def stats(self) -> EngineStats:
        """Numbers of this moment; never waits for a step."""
        with self._lock:
            total = self._open
        running = len(self._states)
        return EngineStats(
            running=running,
            queued=max(0, total - running),
            records=len(self._kept),
            memory=self._memory,
            device_bytes=self._runner.device_bytes,
            shelf=None if self._shelving is None else self._shelving.shelf.stats(),
            counters=self.metrics.snapshot(),
        )

    def banks(self) -> list[Bank]:
        """Every sequence in the cache at this moment; never waits for a step."""
        return survey(self._scheduler, self._states, self._kept, self._clock())

    def close(self) -> None:
        """Refuse new requests, cancel the open ones, stop the thread."""
        with self._lock:
            self._closing = True
        self._inbox.put(self._stop)
        if self._thread is None:
            self._read_inbox(wait=False)
            self._hand_out()
        else:
            self._thread.join()

    # --- everything below runs on the engine's thread ---

    def turn(self, *, wait: bool = False) -> bool:
        """Take in what was asked, then run one step; whether there was nothing to do."""
        self._read_inbox(wait=wait)
        plan = Plan() if self._stopped else self._scheduler.plan()
        self._execute(plan)
        self._hand_out()
        self._memory = self._scheduler.memory.stats()
        return plan.idle

    def _run(self) -> None:
        try:
            idle = True
            while not self._stopped:
                if idle:
                    self._scheduler.check()  # now nobody waits for it; a broken engine ends and says so
                idle = self.turn(wait=idle)
        finally:
            self._abandon()
            self._aside.shutdown(wait=False, cancel_futures=True)

    def _read_inbox(self, *, wait: bool) -> None:
        if wait:
            self._inbox.get()()
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            command()

    def _accept(self, ticket: Ticket, let_in: Future[None]) -> None:
        heard = let_in.set_running_or_notify_cancel()
        self._tickets[ticket.request.id] = ticket
        try:
            self._scheduler.submit(ticket.request)
        except CapacityError as error:
            self.metrics.add("rejected_live_headroom")
            self._finish(Ended(ticket.request, FinishReason.REFUSED, message=str(error)))
            if heard:
                let_in.set_exception(error)
            return
        if heard:
            let_in.set_result(None)
        if self._shelving is not None and ticket.request.follows is None:
            self._shelving.expect(ticket.request)
        ticket.consult((), self._aside)

    def _drop(self, request_id: str, reason: FinishReason, message: str | None = None) -> None:
        ended = self._scheduler.drop(request_id, reason, message)
        if ended is not None:
            self._finish(ended)

    def _stop(self) -> None:
        for request_id in list(self._tickets):
            self._drop(request_id, FinishReason.CANCELLED)
        self._hand_out()  # nobody waits for what is stored now
        if self._shelving is not None:
            for state in self._kept.values():
                self._shelving.store(state, exactly=True)
                self._shelving.shelf.settle()
            self._shelving.close()
        self._stopped = True

    def _abandon(self) -> None:
        """Refuse everything from now on and leave nobody waiting, whatever ended the thread."""
        with self._lock:
            self._closing = True
        while not self._inbox.empty():
            self._inbox.get_nowait()()
        tickets, self._tickets, self._states = self._tickets, {}, {}
        for ticket in tickets.values():  # not through the scheduler: it may be what broke
            self._dismiss(ticket, FinishReason.FAILED, "the engine stopped")
        self._hand_out()

    def _execute(self, plan: Plan) -> None:
        self._spill(plan.evictions)
        late = {admission.request.id for admission in plan.admissions if not self._enter(admission)}
        self._forget(plan.evictions)
        slices = tuple(piece for piece in plan.slices if piece.sequence not in late)
        if not slices:
            return
        self._hand_out()  # who was let in learns of it before the step
        work = [(self._states[piece.sequence].cache, self._scheduler.tokens(piece)) for piece in slices]
        logits = self._attempt(
            lambda: np.asarray(self._runner.step(work)), tuple(piece.sequence for piece in slices)
        )
        if logits is None:
            return
        decoding = sum(self._tickets[piece.sequence].first is not None for piece in slices)
        self.metrics.add("steps")
        self.metrics.add("decode_steps", min(1, decoding))
        self.metrics.add("decode_rows", decoding)
        rules_end = self._clock() + RULE_SECONDS
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
            self._drop(sequences[0], FinishReason.FAILED, message)
            return None
        for sequence in sequences:
            self._scheduler.restart(sequence)
            fresh = self._attempt(functools.partial(self._fresh, sequence), (sequence,))
            if fresh is not None:
                self._states[sequence] = fresh
        return None

    def _enter(self, admission: Admission) -> bool:
        """Make the state of a request that starts; False when it is not as planned."""
        planned = self._has_source(admission)
        if not planned:
            self._scheduler.restart(admission.request.id)
            admission = Admission(admission.request, CacheKind.COLD)
        state = self._attempt(functools.partial(self._begin, admission), (admission.request.id,))
        if state is not None:
            self._admit(admission, state)
        return planned and state is not None

    def _has_source(self, admission: Admission) -> bool:
        """Whether the state to start from is there: a running request may have failed in this very turn."""
        if not isinstance(admission.source, str):
            return True
        source = self._states.get(admission.source)
        return source is not None and admission.cached in source.anchors

    def _begin(self, admission: Admission) -> State:
        if admission.source is None:
            return self._fresh(admission.request.id)
        if isinstance(admission.source, str):
            source = self._states[admission.source]
        elif admission.kind is CacheKind.WARM:  # it goes on in the kept state itself
            source = self._kept.pop(admission.source)
        else:
            source = self._kept[admission.source]
        state = source
        if admission.kind is CacheKind.FORK:
            state = self._fresh(admission.request.id)
            state.cache.resume(source.anchors[admission.cached], admission.copied)
        source.used_at = self._clock()
        state.starts = source.starts = source.starts + 1
        state.origin = source.origin.then(admission.request.prompt)
        state.anchors = {at: source.anchors[at] for at in admission.anchors}
        return state

    def _fresh(self, request_id: str) -> State:
        """An empty state over the pages of a running request."""
        cache = self._runner.new_cache(self._scheduler.table(request_id))
        return State(cache, origin=Origin.of(self._tickets[request_id].request.prompt))

    def _let_go(self, evictions: tuple[Eviction, ...]) -> None:
        """Store and drop the states of records that go; nothing else may use their pages in between."""
        self._spill(evictions)
        self._forget(evictions)

    def _spill(self, evictions: tuple[Eviction, ...]) -> None:
        """Store states that go for want of room, while their pages are as they were."""
        for gone in evictions:
            if self._shelving is not None and not gone.replaced:
                self._shelving.store(self._kept[gone.record], exactly=True)

    def _when_read(self, reading: Reading) -> None:
        """A stored state is read, on another thread: keep it, and let the request go on that waits for it."""
        self._inbox.put(lambda: self._take(reading))

    def _take(self, reading: Reading) -> None:
        shelving, name = self._shelving, reading.request.id
        assert shelving is not None
        found = self._attempt(
            lambda: shelving.take(reading, yielded=lambda: self._let_go(self._scheduler.evictions())), (name,)
        )
        if found is not None:
            self._kept[found.record] = found.state
            self._tickets[name].recalled = found.record
            found.state.used_at = self._clock()
            found.state.origin = Origin.of(found.state.tokens)

    def _forget(self, evictions: tuple[Eviction, ...]) -> None:
        """Drop the states of records that go."""
        for gone in evictions:
            del self._kept[gone.record]
            self.metrics.add("evictions_pinned" if gone.pinned else "evictions_warm")
            log.info("event=evicted tokens=%d bytes=%d pinned=%s", gone.tokens, gone.nbytes, gone.pinned)

    def _admit(self, admission: Admission, state: State) -> None:
        request = admission.request
        self._states[request.id] = state
        ticket = self._tickets[request.id]
        ticket.started = self._clock()
        recalled = admission.source is not None and admission.source == ticket.recalled
        ticket.cached, ticket.kind = admission.cached, CacheKind.DISK if recalled else admission.kind
        self.metrics.add(f"admits_{ticket.kind.value}")
        self.metrics.add("tokens_prefilled_cached", ticket.cached)
        self._tell(ticket, Started(ticket.cached, ticket.kind))

    def _commit(self, piece: Slice, logits: Logits, *, rows: int, rules_end: float) -> None:
        ticket = self._tickets[piece.sequence]
        if piece.start < len(ticket.request.prompt):
            self.metrics.add("tokens_prefilled_computed", piece.stop - piece.start)
        else:
            ticket.steps += 1
            ticket.rows += rows
        drawn = self._attempt(lambda: self._take_step(piece, ticket, logits, rules_end), (piece.sequence,))
        if drawn is None:
            return
        self._moved = self._clock()
        committed = self._scheduler.commit(piece, tuple(generated.token for generated in drawn.tokens))
        for generated in drawn.tokens[: len(committed.tokens)]:
            self._tell(ticket, generated)
        if ticket.generated and committed.tokens:
            gap = (self._moved - ticket.moved) / len(committed.tokens)
            self.metrics.observe("inter_token", gap, times=len(committed.tokens))
        ticket.moved = self._moved
        ticket.generated += len(committed.tokens)
        self.metrics.add("tokens_decoded", len(committed.tokens))
        if committed.ended is not None:
            self._finish(committed.ended)
        elif committed.tokens:
            ticket.consult(committed.tokens, self._aside)

    def _take_step(self, piece: Slice, ticket: Ticket, logits: Logits, rules_end: float) -> Drawn:
        """Keep the state where it is to be kept, and draw what follows, if anything does."""
        if piece.anchors:
            self._states[piece.sequence].freeze()
        return self._draw(piece, ticket, logits, rules_end) if piece.samples else Drawn(())

    def _draw(self, piece: Slice, ticket: Ticket, logits: Logits, rules_end: float) -> Drawn:
        allowance = ticket.allowance(rules_end - self._clock())
        drawn = draw(logits, ticket.request, allowance, position=piece.stop)
        ticket.replaced += drawn.replaced
        if ticket.first is None:
            ticket.first = self._clock()
        return drawn

    def _finish(self, ended: Ended) -> None:
        request = ended.request
        ticket = self._tickets.pop(request.id)
        state = self._states.pop(request.id, None)
        if state is not None and request.reuse and ended.computed and ended.reason is not FinishReason.FAILED:
            state.tenant, state.tokens = request.tenant, np.asarray(ended.computed, np.int32)
            state.used_at = self._clock()
            state.pin = self._scheduler.memory.wish(request.id)
            self._kept[self._scheduler.keep(ended, tuple(state.anchors), state.own_bytes)] = state
            if self._shelving is not None:
                self._shelving.store(state, exactly=False)
            self._let_go(self._scheduler.evictions())
        else:
            self._scheduler.release(request.id)
        self._dismiss(ticket, ended.reason, ended.message)

    def _dismiss(self, ticket: Ticket, reason: FinishReason, message: str | None) -> None:
        """Count the end of a request, and tell whoever waits for it."""
        with self._lock:
            self._open -= 1
            self._moved = self._clock()
        timings = ticket.timings(self._clock())
        self.metrics.ended(reason, timings)
        self._tell(ticket, Finished(reason, timings, message))

    def _tell(self, ticket: Ticket, event: Event) -> None:
        """Keep an event until the next `_hand_out`: all of a step are told together."""
        self._untold.append((ticket, event))

    def _hand_out(self) -> None:
        """Tell what happened; RuntimeError means the caller's own loop is gone, so its request is ended."""
        if not self._untold:
            return
        while self._untold:  # one by one: a sink that breaks may not keep from others what they wait for
            ticket, event = self._untold.popleft()
            try:
                ticket.sink(event)
            except RuntimeError:
                log.warning("event=caller_gone request=%s", ticket.request.id)
                self.cancel(ticket.request.id)
        self._told()


def _blame(error: Exception) -> str:
    """What a client is told of the error that ended its request; never a path or a stack."""
    if isinstance(error, RuleError):
        return str(error)
    if isinstance(error, NumericsError):
        return "the model gave unusable numbers for this request"
    return "the engine failed on this request"
