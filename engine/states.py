"""States of sequences as the loop holds them: live, frozen at anchors, and kept."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.cache.view import CacheView
from engine.scheduler.records import MAX_ANCHORS, Ids, thinned

_SALT = secrets.token_bytes(16)  # so that nobody can guess a prompt by its name


@dataclass(frozen=True, slots=True)
class Origin:
    """The prompt that a conversation began with: its length in tokens, and a name that does not tell it."""

    length: int = 0
    name: str = ""

    @classmethod
    def of(cls, prompt: Sequence[int] | Ids) -> Origin:
        """The origin of a conversation that begins with this prompt."""
        ids = np.asarray(prompt, np.int32).tobytes()
        return cls(len(prompt), hashlib.blake2b(ids, key=_SALT, digest_size=4).hexdigest())

    def then(self, prompt: Sequence[int]) -> Origin:
        """This one, if the prompt goes on from it; else that of a conversation of its own."""
        return self if self.length and Origin.of(prompt[: self.length]) == self else Origin.of(prompt)


@dataclass(slots=True)
class State:
    """One sequence: live, and frozen at its anchors; of a kept one also whose it is, ids and wish to pin.

    `used_at` in seconds of the engine's clock; `starts` counts the prompts that were continued from it.
    """

    cache: CacheView
    anchors: dict[int, Any] = field(default_factory=dict)
    tenant: str = ""
    tokens: Ids = field(default_factory=lambda: np.zeros(0, np.int32))
    origin: Origin = field(default_factory=Origin)
    used_at: float = 0.0
    starts: int = 0
    pin: bool | None = None

    def freeze(self) -> None:
        """Keep the present state as an anchor; when there are too many, one goes.

        The anchors are replaced, never changed: other threads count their bytes meanwhile.
        """
        every = {**self.anchors, self.cache.length: self.cache.snapshot()}
        self.anchors = {at: every[at] for at in thinned(every, MAX_ANCHORS)}

    @property
    def own_bytes(self) -> int:
        """Bytes of all of it besides the pages."""
        frozen: int = sum(snapshot.nbytes for snapshot in self.anchors.values())
        return self.cache.own_bytes + frozen
