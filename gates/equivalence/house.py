"""A loop that is driven turn by turn and keeps what its requests saw: tokens, raw logits, final states."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.sequence import SequenceCache
from engine.cache.shelf import Shelf
from engine.core import (
    CacheKind,
    Ended,
    Event,
    Finished,
    FinishReason,
    Generated,
    Logits,
    Request,
    SamplingParams,
    Slice,
    Started,
)
from engine.loop import Engine
from engine.runner import Runner
from engine.scheduler.scheduler import SchedulerLimits
from engine.stepper import Stepper
from gates.equivalence.seen import LOGITS, Seen
from gates.equivalence.workbench import state

PATIENCE_S = 120.0


@dataclass(slots=True)
class Asked:
    """One request, what it was told, and what the loop computed for it."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    rows: list[NDArray[np.float32]] = field(default_factory=list)  # logits behind the prompt
    state: Seen = field(default_factory=dict)
    cached: int = -1
    kind: CacheKind | None = None
    end: Finished | None = None

    def hear(self, event: Event) -> None:
        """Events of the loop."""
        if isinstance(event, Started):
            self.cached, self.kind = event.cached_tokens, event.kind
        elif isinstance(event, Generated):
            self.tokens.append(event.token)
        elif isinstance(event, Finished):
            self.end = event

    @property
    def seen(self) -> Seen:
        """The answer, the logits that it was drawn from, and the state that it left."""
        logits = np.stack(self.rows) if self.rows else np.zeros((0, 0), np.float32)
        return {"tokens": np.array(self.tokens, np.int32), LOGITS: logits, **self.state}


class _Watched(Stepper):
    """Keeps logits and last states by request."""

    def __init__(self, asked: dict[str, Asked], *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self.asked = asked

    def _commit(self, piece: Slice, logits: Logits, *, rows: int, rules_end: float) -> None:
        if piece.samples:
            self.asked[piece.sequence].rows.append(logits.copy())
        super()._commit(piece, logits, rows=rows, rules_end=rules_end)

    def _finish(self, ended: Ended) -> None:
        live = self.pool.running.get(ended.request.id)
        if live is not None and isinstance(live.cache, SequenceCache):
            self.asked[ended.request.id].state = state(live.cache)
        super()._finish(ended)


class House:
    """An engine over one runner; `close` writes what it keeps to its shelf."""

    def __init__(self, runner: Runner, *, shelf: Shelf | None = None, **limits: Any) -> None:
        self.runner = runner
        self._asked: dict[str, Asked] = {}
        self._engine = Engine(
            runner,
            SchedulerLimits(context=32768, **limits),
            threaded=False,
            shelf=shelf,
            stepper=functools.partial(_Watched, self._asked),
        )

    def submit(self, prompt: Sequence[int], count: int, *, reuse: bool = True) -> Asked:
        """Ask greedily for so many tokens, and return at once."""
        name = f"request {len(self._asked) + 1}"
        greedy = SamplingParams(temperature=0.0)
        asked = Asked(Request(name, tuple(prompt), count, greedy, reuse=reuse))
        self._asked[name] = asked
        self._engine.submit(asked.request, asked.hear)
        return asked

    def ask(self, prompt: Sequence[int], count: int, *, reuse: bool = True) -> Asked:
        """Ask and wait for the end."""
        asked = self.submit(prompt, count, reuse=reuse)
        self.finish(asked)
        return asked

    def turn(self) -> bool:
        """One step; whether there was nothing to do."""
        return self._engine.turn()

    def cancel(self, asked: Asked) -> None:
        """End a request at the next step."""
        self._engine.cancel(asked.request.id)

    def finish(self, *asked: Asked) -> None:
        """Go on until these are answered; RuntimeError when one fails or none of them moves any more."""
        self.go_on(lambda: all(one.end is not None for one in asked), f"{asked[0].request.id} had no end")
        for one in asked:
            if one.end is not None and one.end.reason in (FinishReason.FAILED, FinishReason.REFUSED):
                raise RuntimeError(f"{one.request.id} {one.end.reason.value}: {one.end.message}")

    def go_on(self, done: Callable[[], bool], otherwise: str) -> None:
        """Step until it is done; RuntimeError, which says what is so `otherwise`, after a long while."""
        until = time.monotonic() + PATIENCE_S
        while not done():
            if self.turn():
                time.sleep(0.001)  # a file is read or written beside us
            if time.monotonic() > until:
                raise RuntimeError(f"{otherwise} after {PATIENCE_S:g} s")

    def count(self, name: str) -> int:
        """A counter of the engine."""
        return self._engine.metrics.snapshot().get(name, 0)

    @property
    def evicted(self) -> int:
        """Records that had to go."""
        return self.count("evictions_warm") + self.count("evictions_pinned")

    def close(self) -> None:
        """End it as a server ends."""
        self._engine.close()
