"""Decides what every step does: who starts, which tokens run together, who is finished.

Pure: no tensor, no thread, no clock; the same calls give the same plans.  No torch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine.core import (
    Admission,
    CacheKind,
    Committed,
    Ended,
    FinishReason,
    Plan,
    Request,
    Slice,
)
from engine.errors import CapacityError, ContextLengthError
from engine.scheduler.records import Records
from engine.scheduler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of the scheduler; chunks and grid in tokens.

    `prefill_chunk` holds while nothing decodes, `prefill_chunk_live` while something does.
    """

    context: int
    max_sequences: int = 8
    queue_depth: int = 64
    prefill_chunk: int = 1024
    prefill_chunk_live: int = 256
    anchor_every: int = 4096
    max_records: int = 32
    max_record_bytes: int = 256 * 2**20


class Scheduler:
    """Queue, running sequences and kept records of one engine."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.records = Records(max_count=limits.max_records, max_bytes=limits.max_record_bytes)
        self._queue: deque[Request] = deque()
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
        """Queue a request; raises CapacityError (queue full) or ContextLengthError (prompt too long)."""
        if len(request.prompt) >= self.limits.context:
            raise ContextLengthError(prompt_tokens=len(request.prompt), context_tokens=self.limits.context)
        if self.queued >= self.limits.queue_depth and self.running >= self.limits.max_sequences:
            raise CapacityError(f"{self.queued} requests wait already, which is the limit; try again soon")
        self._queue.append(request)

    def drop(self, request_id: str, reason: FinishReason, message: str | None = None) -> Ended | None:
        """End a request now, running or waiting; None when it is unknown or already over."""
        sequence = self._running.pop(request_id, None)
        if sequence is not None:
            return _ended(sequence, reason, message)
        for request in self._queue:
            if request.id == request_id:
                self._queue.remove(request)
                return Ended(request, reason, message=message)
        return None

    def plan(self) -> Plan:
        """The next step; idle when there is nothing to do."""
        self._ticks += 1
        return Plan(tuple(self._admit()), tuple(self._slices()))

    def commit(self, done: Slice, tokens: tuple[int, ...]) -> Committed:
        """Take in a computed slice and the ids that follow it, if any; the request's end when it is over."""
        progress = self._running[done.sequence].advance(done, tokens)
        ended = None if progress.reason is None else self.drop(done.sequence, progress.reason)
        return Committed(progress.tokens, ended)

    def restart(self, sequence: str) -> None:
        """Compute a request again from its first token, in steps of its own."""
        self._running[sequence].restart()

    def tokens(self, piece: Slice) -> list[int]:
        """The ids of a slice."""
        return self._running[piece.sequence].tokens[piece.start : piece.stop]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        self.records.check()
        assert self.running <= self.limits.max_sequences, self.running
        for sequence in self._running.values():
            assert 0 <= sequence.computed <= len(sequence.tokens), sequence
            assert sequence.generated <= sequence.budget, sequence
            assert len(sequence.tokens) <= self.limits.context, sequence

    def _admit(self) -> list[Admission]:
        admissions = []
        while self._queue and self.running < self.limits.max_sequences:
            admission = self._source(self._queue.popleft())
            admissions.append(admission)
        return admissions

    def _source(self, request: Request) -> Admission:
        """Start one request from the record that saves most of its prompt."""
        found = self.records.find(request.prompt) if request.reuse else None
        admission = Admission(request, CacheKind.COLD)
        if found is not None:
            record, cached = found
            kind = CacheKind.WARM if cached == len(record.tokens) else CacheKind.FORK
            if kind is CacheKind.WARM:
                self.records.take(record.id)
            admission = Admission(request, kind, cached, record.id)
        self._running[request.id] = Sequence(
            request,
            computed=admission.cached,
            anchor_every=self.limits.anchor_every,
            budget=min(request.max_tokens, self.limits.context - len(request.prompt)),
            served=self._ticks - 1,  # behind everybody who waits longer
        )
        return admission

    def _slices(self) -> list[Slice]:
        """One token of every decoding sequence and one prefill chunk; a lone sequence runs by itself."""
        lone = [sequence for sequence in self._running.values() if sequence.alone]
        shared = [sequence for sequence in self._running.values() if not sequence.alone]
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
