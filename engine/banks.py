"""What lies in the cache, one entry a sequence, for a person who watches.

Read from any thread while the engine works: entries are each right, their sum need not be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.scheduler.scheduler import Scheduler
from engine.states import State


@dataclass(frozen=True, slots=True)
class Bank:
    """One sequence: running, or kept for prompts that begin like it.

    `conversation` names what it is a part of without telling it; `age_s` since it was used last; `starts`
    counts the prompts that were continued from it.
    """

    conversation: str
    state: Literal["live", "warm", "pinned"]
    tokens: int
    nbytes: int
    age_s: float
    starts: int


def survey(
    scheduler: Scheduler, running: Mapping[str, State], kept: Mapping[int, State], now: float
) -> list[Bank]:
    """Every sequence there is: running ones first, then those that were used last."""
    return [*_live(scheduler, running), *_kept(scheduler, kept, now)]


def _live(scheduler: Scheduler, running: Mapping[str, State]) -> Iterator[Bank]:
    page_bytes = scheduler.memory.ledger.page_bytes
    for name, state in dict(running).items():
        with contextlib.suppress(KeyError):  # it ended meanwhile
            nbytes = len(scheduler.table(name).pages) * page_bytes + state.own_bytes
            yield Bank(state.origin.name, "live", state.cache.length, nbytes, 0.0, state.starts)


def _kept(scheduler: Scheduler, kept: Mapping[int, State], now: float) -> Iterator[Bank]:
    states = dict(kept)
    records = [record for record in list(scheduler.memory.records.values()) if record.id in states]
    for record in sorted(records, key=lambda record: -states[record.id].used_at):
        state = states[record.id]
        kind: Literal["warm", "pinned"] = "pinned" if record.pinned else "warm"
        age_s = max(0.0, now - state.used_at)
        yield Bank(state.origin.name, kind, len(record.tokens), record.nbytes, age_s, state.starts)
