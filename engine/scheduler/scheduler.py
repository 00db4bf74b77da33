"""Decides what every step does: who starts, which tokens run together, who is finished.

Pure: no tensor, no thread, no clock; the same calls give the same plans.  No torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.cache.pages import Ledger, PageTable
from engine.core import (
    Admission,
    Committed,
    Ended,
    Eviction,
    FinishReason,
    Plan,
    Request,
    Slice,
)
from engine.errors import CapacityError, ContextLengthError
from engine.scheduler.memory import Memory, MemoryLimits, Running
from engine.scheduler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of the scheduler; chunks and grid in tokens.

    `prefill_chunk` holds while nothing decodes, `prefill_chunk_live` while something does.  `tranche` is what
    of an answer has its memory promised at once, `pin_from` the length from which a record is pinned.
    """

    context: int
    max_sequences: int = 8
    queue_depth: int = 64
    prefill_chunk: int = 1024
    prefill_chunk_live: int = 256
    anchor_every: int = 4096
    max_records: int = 32
    tranche: int = 32768
    pin_from: int = 65536


class Scheduler:
    """Queue, running sequences and kept records of one engine, and the pages that they hold."""

    def __init__(self, limits: SchedulerLimits, ledger: Ledger) -> None:
        self.limits = limits
        self.memory = Memory(
            ledger,
            MemoryLimits(
                max_records=limits.max_records,
                tranche=limits.tranche,
                pin_from=limits.pin_from,
                anchor_every=limits.anchor_every,
            ),
        )
        self._queue: deque[Request] = deque()
        self._held: set[str] = set()  # of the queue: what they start from is not there yet
        self._running: dict[str, Sequence] = {}
        self._ticks = 0

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests that are being computed."""
        return len(self._running)

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises CapacityError (queue full, or no memory whatever yields) or ContextLengthError (too long).
        """
        if len(request.prompt) >= self.limits.context:
            raise ContextLengthError(prompt_tokens=len(request.prompt), context_tokens=self.limits.context)
        if self.queued >= self.limits.queue_depth and self.running >= self.limits.max_sequences:
            raise CapacityError(f"{self.queued} requests wait already, which is the limit; try again soon")
        self.memory.reserve(request)
        self._queue.append(request)

    def hold(self, request_id: str) -> None:
        """Let others pass a queued request until it may proceed."""
        self._held.add(request_id)

    def holds(self, request_id: str) -> bool:
        """Whether a request is queued and held."""
        return request_id in self._held

    def proceed(self, request_id: str) -> bool:
        """Hold a request no longer; False when it left meanwhile."""
        held = self.holds(request_id)
        self._held.discard(request_id)
        return held

    def drop(self, request_id: str, reason: FinishReason, message: str | None = None) -> Ended | None:
        """End a request now, running or waiting; None when it is unknown or already over.

        `keep` or `release` must follow for its pages.
        """
        self._held.discard(request_id)
        sequence = self._running.pop(request_id, None)
        if sequence is not None:
            return _ended(sequence, reason, message)
        for request in self._queue:
            if request.id == request_id:
                self._queue.remove(request)
                return Ended(request, reason, message=message)
        return None

    def keep(self, ended: Ended, anchors: tuple[int, ...], own_bytes: int) -> int:
        """Make a record of an ended request's state; its number.  It may be among the next evictions."""
        return self.memory.keep(ended.request.id, ended.computed, anchors, own_bytes).id

    def release(self, request_id: str) -> None:
        """Give the pages of an ended request back."""
        self.memory.release(request_id)

    def plan(self) -> Plan:
        """The next step; idle when there is nothing to do."""
        self._ticks += 1
        admissions, slices = tuple(self._admit()), tuple(self._slices())
        for piece in slices:
            self.memory.grow(piece.sequence, piece.stop)
        return Plan(admissions, slices, self.evictions())

    def evictions(self) -> tuple[Eviction, ...]:
        """Records that went since this was asked last; `plan` asks too."""
        return self.memory.evicted()

    def commit(self, done: Slice, tokens: tuple[int, ...]) -> Committed:
        """Take in a computed slice and the ids that follow it, if any; the request's end when it is over."""
        sequence = self._running[done.sequence]
        progress = sequence.advance(done, tokens)
        reason = progress.reason
        if reason is None and not self.memory.extend(done.sequence, len(sequence.tokens)):
            reason = FinishReason.LENGTH  # others need the memory
        ended = None if reason is None else self.drop(done.sequence, reason)
        return Committed(progress.tokens, ended)

    def restart(self, sequence: str) -> None:
        """Compute a request again from its first token, in steps and pages of its own, when there is room."""
        self._running[sequence].restart()
        self.memory.restart(sequence)

    def saves(self, request: Request) -> int:
        """Tokens of a prompt that need no computing."""
        return self.memory.source(request, self._others()).cached

    def table(self, request_id: str) -> PageTable:
        """The pages of a running request."""
        return self.memory.table(request_id)

    def tokens(self, piece: Slice) -> list[int]:
        """The ids of a slice."""
        return self._running[piece.sequence].tokens[piece.start : piece.stop]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        self.memory.check()
        assert self.running <= self.limits.max_sequences, self.running
        assert self._held <= {request.id for request in self._queue}, self._held
        for sequence in self._running.values():
            assert 0 <= sequence.computed <= len(sequence.tokens), sequence
            assert sequence.generated <= sequence.budget, sequence
            assert len(sequence.tokens) <= self.limits.context, sequence

    def _admit(self) -> list[Admission]:
        admissions: list[Admission] = []
        if not self.memory.resume():  # they are older
            return admissions
        while self.running < self.limits.max_sequences and (first := self._first_ready()) is not None:
            self._queue.remove(first)
            admissions.append(self._start(first))
        return admissions

    def _first_ready(self) -> Request | None:
        first = next(filter(self._ready, self._queue), None)
        return first if first is not None and self.memory.fits(first.id) else None

    def _ready(self, request: Request) -> bool:
        """It waits for no file, and for no prompt that it shares and that another computes, now or later."""
        if self.holds(request.id):
            return False
        if request.follows is None:
            return True
        leader = self._running.get(request.follows)
        if leader is None and request.follows in {other.id for other in self._queue}:
            return False
        return leader is None or leader.computed >= len(request.prompt) - 1

    def _start(self, request: Request) -> Admission:
        """Start one request where most of its prompt is saved."""
        source = self.memory.source(request, self._others())
        start = self.memory.start(request, source)
        self._running[request.id] = Sequence(
            request,
            computed=source.cached,
            anchor_every=self.limits.anchor_every,
            budget=min(request.max_tokens, self.limits.context - len(request.prompt)),
            served=self._ticks - 1,  # behind everybody who waits longer
            anchors=list(start.anchors),
        )
        return Admission(request, source.kind, source.cached, source.origin, start.copied, start.anchors)

    def _others(self) -> Iterator[Running]:
        """Running requests that another may start from."""
        for sequence in self._running.values():
            if sequence.anchors and sequence.request.reuse:
                tokens = np.asarray(sequence.request.prompt, np.int32)
                yield Running(sequence.request.id, sequence.request.tenant, tokens, tuple(sequence.anchors))

    def _slices(self) -> list[Slice]:
        """One token of every decoding sequence and one prefill chunk; a lone sequence runs by itself."""
        going = [entry for entry in self._running.values() if not self.memory.rests(entry.request.id)]
        lone = [sequence for sequence in going if sequence.alone]
        shared = [sequence for sequence in going if not sequence.alone]
        live = any(sequence.live for sequence in self._running.values())
        chunk = self.limits.prefill_chunk_live if live else self.limits.prefill_chunk
        if lone and (self._ticks % 2 or not shared):
            return [self._serve(min(lone, key=lambda sequence: sequence.served), chunk)]
        decoding = [sequence for sequence in shared if sequence.remaining == 1]
        waiting = [sequence for sequence in shared if sequence.remaining > 1]
        return [sequence.slice(1) for sequence in decoding] + self._prefill(waiting, chunk)

    def _prefill(self, waiting: list[Sequence], room: int) -> list[Slice]:
        """One chunk of `room` tokens: what fits an equal share first, then long prompts in turn.

        So a short prompt never waits for a long one, and every long one gets at least a share in its turn.
        """
        share = room // max(1, len(waiting))
        order = sorted(waiting, key=lambda sequence: (sequence.remaining > share, sequence.served))
        slices = []
        for sequence in order:
            if room <= 0:
                break
            slices.append(self._serve(sequence, room))
            room -= slices[-1].stop - slices[-1].start
        return slices

    def _serve(self, sequence: Sequence, chunk: int) -> Slice:
        sequence.served = self._ticks
        return sequence.slice(chunk)


def _ended(sequence: Sequence, reason: FinishReason, message: str | None) -> Ended:
    return Ended(sequence.request, reason, tuple(sequence.tokens[: sequence.computed]), message)
