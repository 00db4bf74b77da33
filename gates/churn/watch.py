"""Looks at the server while it is churned: its memory and its own counters, as remarks in the history.

A thread of its own, so that a server that answers nobody still shows what it holds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from gates.harness import scrape
from gates.harness.rig import Rig

SEEN: Final = "server_seen"  # a remark: memory and counters at one moment
SAMPLES: Final = 240  # in one churn: twice a second in two minutes


@dataclass(slots=True)
class Watch:
    """Samples every `every_s` seconds from `start` until the end of the block."""

    rig: Rig
    every_s: float
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread:
            self._thread.join(self.every_s)

    def _look(self) -> None:
        while not self._over.is_set():
            seen = sample(self.rig)
            if self._over.is_set():  # the history may be closed by now
                return
            self.rig.history.note(SEEN, **seen)
            self._over.wait(self.every_s)


def every_s(minutes: float) -> float:
    """How often a churn of so many minutes is looked at."""
    return minutes * 60 / SAMPLES


def sample(rig: Rig) -> dict[str, Any]:
    """Memory and counters now; what cannot be seen is None."""
    held, counted = rig.memory(), scrape.read(rig.client)
    return {
        "anon_bytes": held.anon_bytes if held else None,
        "swap_bytes": held.swap_bytes if held else None,
        "device_bytes": counted.value(scrape.DEVICE_BYTES),
        "kv_used_bytes": _used(counted),
        "kv_budget_bytes": counted.value(scrape.KV_BYTES, kind="budget"),
        "pinned_evictions": counted.value(scrape.EVICTIONS, tier="pinned"),
        "warm_evictions": counted.value(scrape.EVICTIONS, tier="warm"),
        "inflight": counted.value(scrape.INFLIGHT),
    }


def _used(counted: scrape.Scrape) -> float | None:
    budget = counted.value(scrape.KV_BYTES, kind="budget")
    free = counted.value(scrape.KV_BYTES, kind="free")
    return None if budget is None or free is None else budget - free
