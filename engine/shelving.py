"""Kept states and the shelf of files behind them: what is stored, what comes back, and who waits for it.

Decides when a file is worth reading; copies bytes, and leaves files to the shelf's worker.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from engine.cache.shelf import Entry, Found, Shelf
from engine.cache.stored import Arrays
from engine.cache.view import ROWS, ModelRunner
from engine.core import Request
from engine.metrics import Metrics
from engine.scheduler.scheduler import Scheduler
from engine.states import State

log = logging.getLogger("engine.loop")


@dataclass(frozen=True, slots=True)
class Recalled:
    """A state that is back in memory, and the number of its record."""

    record: int
    state: State


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that is read for a request which waits for it."""

    request: Request
    found: Found
    arrays: Future[Arrays | None]


class Shelving:
    """Puts kept states on a shelf and brings them back, on the engine's thread, which never waits for a disk.

    One file is read at a time; requests that need one wait in line for it and hold up nobody else.
    `arrived` is called, on whatever thread, when a file is read; `take` must follow on the engine's thread.
    """

    def __init__(
        self,
        shelf: Shelf,
        runner: ModelRunner,
        scheduler: Scheduler,
        *,
        metrics: Metrics,
        arrived: Callable[[Reading], None],
    ) -> None:
        self.shelf = shelf
        self._runner = runner
        self._scheduler = scheduler
        self._metrics = metrics
        self._arrived = arrived
        self._line: deque[Request] = deque()
        self._reading = False

    def store(self, state: State, *, exactly: bool) -> None:
        """Copy a state and have it written, if it is not there yet; not `exactly`: nor most of it."""
        if not self.shelf.wants(state.tenant, state.tokens, exactly=exactly):
            return
        ledger = self._runner.ledger
        nbytes = -(-len(state.tokens) // ledger.page_tokens) * ledger.page_bytes + state.own_bytes
        arrays = None
        if self.shelf.has_room(nbytes):
            try:
                arrays = state.cache.arrays(state.anchors)
            except (MemoryError, RuntimeError) as error:
                log.warning("event=prefix_not_stored tokens=%d reason=%r", len(state.tokens), error)
        if arrays is None:
            self._metrics.add("spills_skipped")
            return
        written = self.shelf.put(state.tenant, state.tokens, tuple(state.anchors), arrays, pin=state.pin)
        written.add_done_callback(lambda done: self._count(stored=done.result() is not None))

    def expect(self, request: Request) -> None:
        """Hold a queued request if a file saves more of its prompt than what is kept in memory."""
        if request.reuse and self._better(request) is not None:
            self._scheduler.hold(request.id)
            self._line.append(request)
            self._read_next()

    def take(self, reading: Reading, *, yielded: Callable[[], None]) -> Recalled | None:
        """Make a state of what was read, and let its request go on; None if it is of no use any more.

        `yielded` is called when records had to yield, before anything is written into their pages.
        """
        self._reading = False
        try:
            wanted = self._scheduler.proceed(reading.request.id)
            arrays = reading.arrays.result()
            return self._restore(reading, arrays, yielded) if wanted else None
        finally:
            self._read_next()

    def close(self) -> None:
        """Finish what is being written."""
        self.shelf.close()

    def _better(self, request: Request) -> Found | None:
        found = self.shelf.find(request.tenant, np.asarray(request.prompt, np.int32))
        return found if found is not None and found.place > self._scheduler.saves(request) else None

    def _read_next(self) -> None:
        while self._line and not self._reading:
            request = self._line.popleft()
            found = self._better(request)  # what the one before it brought back may serve it too
            if found is None:
                self._scheduler.proceed(request.id)
            elif self._scheduler.holds(request.id):
                self._reading = True
                reading = Reading(request, found, self.shelf.load(found.entry))
                self._announce(reading)

    def _announce(self, reading: Reading) -> None:
        reading.arrays.add_done_callback(lambda _: self._arrived(reading))

    def _restore(
        self, reading: Reading, arrays: Arrays | None, yielded: Callable[[], None]
    ) -> Recalled | None:
        request, prefix = reading.request, reading.found.entry.prefix
        if arrays is None:
            self._metrics.add("recalls_unusable")
            return None
        if reading.found.place <= self._scheduler.saves(request):
            return None
        own_bytes = sum(array.nbytes for name, array in arrays.items() if not name.startswith(ROWS))
        memory = self._scheduler.memory
        record = memory.adopt(request.tenant, prefix.tokens, prefix.anchors, own_bytes, wish=prefix.pin)
        yielded()
        if record is None:
            self._metrics.add("recalls_no_room")
            return None
        try:
            cache = self._runner.new_cache(record.table)
            anchors = cache.fill(len(prefix.tokens), prefix.anchors, arrays)
        except (LookupError, ValueError, RuntimeError, MemoryError) as error:
            memory.discard(record.id)
            self._give_up(reading.found.entry, error)
            return None
        self._metrics.add("recalls_used")
        log.info("event=prefix_recalled tokens=%d place=%d", len(prefix.tokens), reading.found.place)
        return Recalled(record.id, State(cache, anchors, request.tenant, prefix.tokens, pin=prefix.pin))

    def _give_up(self, entry: Entry, error: Exception) -> None:
        """Say why a file that was read does not come back; it stays only where memory was all that lacked."""
        if isinstance(error, MemoryError):
            log.warning("event=prefix_not_recalled tokens=%d reason=%r", len(entry.prefix.tokens), error)
            self._metrics.add("recalls_no_room")
        else:
            self.shelf.reject(entry, f"it does not fit this model: {error}")
            self._metrics.add("recalls_unusable")

    def _count(self, *, stored: bool) -> None:
        self._metrics.add("spills_stored" if stored else "spills_failed")
