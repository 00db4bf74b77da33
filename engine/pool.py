"""The states of running and kept sequences: what a request begins from, what is kept of it, what yields.

Does what the scheduler has decided, on the engine's thread alone; other threads only read what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engine.cache.view import ModelRunner
from engine.core import Admission, CacheKind, Ended, Eviction, FinishReason, Request
from engine.metrics import Metrics
from engine.scheduler.scheduler import Scheduler
from engine.shelving import Reading, Shelving
from engine.states import Origin, State

log = logging.getLogger("engine.loop")


@dataclass(slots=True)
class StatePool:
    """States by the request that runs on them or the record that keeps them, and perhaps a shelf behind.

    `clock` in seconds.
    """

    scheduler: Scheduler
    runner: ModelRunner
    metrics: Metrics
    clock: Callable[[], float]
    shelving: Shelving | None = None
    running: dict[str, State] = field(default_factory=dict)
    kept: dict[int, State] = field(default_factory=dict)

    def expect(self, request: Request) -> None:
        """Look on the shelf for what a queued request may begin from."""
        if self.shelving is not None and request.follows is None:
            self.shelving.expect(request)

    def recall(self, reading: Reading) -> int | None:
        """Keep what was read from the shelf; the number of its record, None if it is of no use any more."""
        assert self.shelving is not None
        found = self.shelving.take(reading, yielded=lambda: self._let_go(self.scheduler.evictions()))
        if found is None:
            return None
        self.kept[found.record] = found.state
        found.state.used_at = self.clock()
        found.state.origin = Origin.of(found.state.tokens)
        return found.record

    def has_source(self, admission: Admission) -> bool:
        """Whether the state to start from is there: a running request may have failed in this very turn."""
        if not isinstance(admission.source, str):
            return True
        source = self.running.get(admission.source)
        return source is not None and admission.cached in source.anchors

    def begin(self, admission: Admission) -> State:
        """The state of a request that starts, which is not yet running on it."""
        if admission.source is None:
            return self.fresh(admission.request)
        if isinstance(admission.source, str):
            source = self.running[admission.source]
        elif admission.kind is CacheKind.WARM:  # it goes on in the kept state itself
            source = self.kept.pop(admission.source)
        else:
            source = self.kept[admission.source]
        state = source
        if admission.kind is CacheKind.FORK:
            state = self.fresh(admission.request)
            state.cache.resume(source.anchors[admission.cached], admission.copied)
        source.used_at = self.clock()
        state.starts = source.starts = source.starts + 1
        state.origin = source.origin.then(admission.request.prompt)
        state.anchors = {at: source.anchors[at] for at in admission.anchors}
        return state

    def fresh(self, request: Request) -> State:
        """An empty state over the pages of a running request."""
        cache = self.runner.new_cache(self.scheduler.table(request.id))
        return State(cache, origin=Origin.of(request.prompt))

    def leave(self, ended: Ended) -> None:
        """Keep the state of a request that ended if it can serve another one; else give its memory back."""
        request = ended.request
        state = self.running.pop(request.id, None)
        if state is not None and request.reuse and ended.computed and ended.reason is not FinishReason.FAILED:
            state.tenant, state.tokens = request.tenant, np.asarray(ended.computed, np.int32)
            state.used_at = self.clock()
            state.pin = self.scheduler.memory.wish(request.id)
            self.kept[self.scheduler.keep(ended, tuple(state.anchors), state.own_bytes)] = state
            if self.shelving is not None:
                self.shelving.store(state, exactly=False)
            self._let_go(self.scheduler.evictions())
        else:
            self.scheduler.release(request.id)

    def spill(self, evictions: tuple[Eviction, ...]) -> None:
        """Store states that go for want of room, while their pages are as they were."""
        for gone in evictions:
            if self.shelving is not None and not gone.replaced:
                self.shelving.store(self.kept[gone.record], exactly=True)

    def forget(self, evictions: tuple[Eviction, ...]) -> None:
        """Drop the states of records that go."""
        for gone in evictions:
            del self.kept[gone.record]
            self.metrics.add("evictions_pinned" if gone.pinned else "evictions_warm")
            log.info("event=evicted tokens=%d bytes=%d pinned=%s", gone.tokens, gone.nbytes, gone.pinned)

    def close(self) -> None:
        """Store what is kept, and finish what is being written."""
        if self.shelving is not None:
            for state in self.kept.values():
                self.shelving.store(state, exactly=True)
                self.shelving.shelf.settle()
            self.shelving.close()

    def _let_go(self, evictions: tuple[Eviction, ...]) -> None:
        """Store and drop the states of records that go; nothing else may use their pages in between."""
        self.spill(evictions)
        self.forget(evictions)
