"""States of sequences as the loop holds them: live, frozen at anchors, stored on disk and brought back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.cache.shelf import Shelf
from engine.cache.view import ROWS, CacheView, ModelRunner
from engine.core import Request
from engine.scheduler.memory import Memory
from engine.scheduler.records import MAX_ANCHORS, Ids, thinned

log = logging.getLogger("engine.loop")


@dataclass(slots=True)
class State:
    """One sequence: live, and frozen at its anchors; of a kept one also whose it is, and its ids."""

    cache: CacheView
    anchors: dict[int, Any] = field(default_factory=dict)
    tenant: str = ""
    tokens: Ids = field(default_factory=lambda: np.zeros(0, np.int32))

    def freeze(self) -> None:
        """Keep the present state as an anchor; when there are too many, one goes."""
        self.anchors[self.cache.length] = self.cache.snapshot()
        self.anchors = {at: self.anchors[at] for at in thinned(self.anchors, MAX_ANCHORS)}

    @property
    def own_bytes(self) -> int:
        """Bytes of all of it besides the pages."""
        frozen: int = sum(snapshot.nbytes for snapshot in self.anchors.values())
        return self.cache.own_bytes + frozen


@dataclass(frozen=True, slots=True)
class Recalled:
    """A state that is back in memory, and the number of its record."""

    record: int
    state: State


@dataclass(frozen=True, slots=True)
class Shelving:
    """Puts kept states on a shelf and brings them back, on the engine's thread."""

    shelf: Shelf
    runner: ModelRunner
    memory: Memory

    def store(self, state: State, *, exactly: bool) -> None:
        """Write a state, if it is not there yet; not `exactly`: nor most of it."""
        if self.shelf.wants(state.tenant, state.tokens, exactly=exactly):
            try:
                arrays = state.cache.arrays(state.anchors)
            except MemoryError:
                log.warning("event=prefix_not_stored tokens=%d reason=memory", len(state.tokens))
                return
            self.shelf.put(state.tenant, state.tokens, tuple(state.anchors), arrays)

    def recall(self, request: Request, *, saved: int, yielded: Callable[[], None]) -> Recalled | None:
        """Bring the state back that saves most of a prompt, if that is more than `saved` tokens.

        `yielded` is called when records had to yield, before anything is written into their pages.
        """
        found = self.shelf.best(request.tenant, np.asarray(request.prompt, np.int32))
        if found is None or found.place <= saved:
            return None
        stored = found.stored
        arrays = self.shelf.load(stored)
        if arrays is None:
            return None
        own_bytes = sum(array.nbytes for name, array in arrays.items() if not name.startswith(ROWS))
        record = self.memory.adopt(request.tenant, stored.tokens, stored.anchors, own_bytes)
        yielded()
        if record is None:
            return None
        cache = self.runner.new_cache(record.table)
        try:
            anchors = cache.fill(len(stored.tokens), stored.anchors, arrays)
        except (KeyError, ValueError) as error:
            log.warning("event=stored_prefix_unusable file=%s reason=%s", stored.path.name, error)
            self.memory.discard(record.id)
            return None
        log.info("event=prefix_recalled tokens=%d bytes=%d", len(stored.tokens), stored.nbytes)
        return Recalled(record.id, State(cache, anchors, request.tenant, stored.tokens))
