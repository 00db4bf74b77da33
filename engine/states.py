"""States of sequences as the loop holds them: live, frozen at anchors, and kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.cache.view import CacheView
from engine.scheduler.records import MAX_ANCHORS, Ids, thinned


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
