"""Counters of the engine: what happened since it started.

Owns the names and that counters only grow.  Knows nothing of how they are shown.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.core import CacheKind, FinishReason

OUTCOMES: Mapping[FinishReason, str] = {
    FinishReason.STOP: "completed",
    FinishReason.LENGTH: "completed",
    FinishReason.CANCELLED: "canceled",
    FinishReason.FAILED: "failed",
}
COUNTERS = (
    "requests_started",
    *(f"requests_{outcome}" for outcome in ("completed", "canceled", "failed", "rejected")),
    *(f"admits_{kind.value}" for kind in CacheKind),
    "tokens_prefilled_computed",
    "tokens_prefilled_cached",
    "tokens_decoded",
    "steps",
)


@dataclass(slots=True)
class Metrics:
    """Thread-safe counters, all present from the start at zero."""

    _values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, amount: int = 1) -> None:
        """Count up; the name must be one of COUNTERS."""
        if amount < 0:
            raise ValueError(f"counter {name} cannot go down by {-amount}")
        with self._lock:
            self._values[name] = self._values[name] + amount

    def ended(self, reason: FinishReason) -> None:
        """Count the outcome of a request."""
        self.add(f"requests_{OUTCOMES[reason]}")

    def snapshot(self) -> dict[str, int]:
        """All counters at one moment."""
        with self._lock:
            return dict(self._values)
