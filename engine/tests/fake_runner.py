"""A runner without a model: the next token is a fixed function of all tokens before it.

Any scheduling fault shows as a different answer: a state that missed, repeated or borrowed a token continues
differently.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.pages import Ledger, PageTable
from engine.cache.view import ROWS
from engine.core import Logits
from engine.tests.fake_pages import TokenPages, ledger

NextToken = Callable[[tuple[int, ...]], int]


@dataclass(frozen=True, slots=True)
class FakeSnapshot:
    """A frozen length: the tokens lie in pages."""

    length: int

    @property
    def nbytes(self) -> int:
        """A pretended size."""
        return 10


@dataclass(slots=True)
class FakeCache:
    """A state that is just the tokens it has seen."""

    pages: TokenPages
    table: PageTable
    length: int = 0
    _read: list[int] = field(default_factory=list)  # pages with tokens: a record that goes has no table

    @property
    def own_bytes(self) -> int:
        """A pretended size."""
        return 10

    @property
    def tokens(self) -> list[int]:
        """Everything seen."""
        return self.pages.read(self._read, self.length)

    def extend(self, tokens: Sequence[int]) -> None:
        """See more."""
        self.pages.write(self.table, self.length, tokens)
        self._read = list(self.table.pages)
        self.length += len(tokens)

    def snapshot(self) -> FakeSnapshot:
        """Freeze."""
        return FakeSnapshot(self.length)

    def arrays(self, anchors: Mapping[int, FakeSnapshot]) -> dict[str, NDArray[Any]]:
        """The tokens, and the positions at which they were frozen."""
        tokens, places = np.array(self.tokens, np.int32), np.array(sorted(anchors), np.int64)
        return {f"{ROWS}0": tokens, "places": places}

    def fill(
        self, length: int, anchors: Sequence[int], arrays: Mapping[str, NDArray[Any]]
    ) -> dict[int, FakeSnapshot]:
        """Become the same tokens."""
        if len(arrays[f"{ROWS}0"]) != length:
            raise ValueError("another length")
        self.extend(arrays[f"{ROWS}0"].tolist())
        return {place: FakeSnapshot(place) for place in anchors}

    def resume(self, snapshot: FakeSnapshot, copied: tuple[int, int] | None) -> None:
        """Begin at a frozen place."""
        self.pages.copy(copied)
        self.length = snapshot.length
        self._read = list(self.table.pages)


@dataclass(slots=True)
class FakeRunner:
    """Logits favour `next_token` of the whole past; `before_step` may raise or wait."""

    vocab: int
    next_token: NextToken | None = None
    before_step: Callable[[list[list[int]]], object] | None = None
    steps: list[list[int]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=ledger)
    device_bytes: int = 0
    _pages: TokenPages = field(init=False)

    def __post_init__(self) -> None:
        self._pages = TokenPages(self.ledger)

    def new_cache(self, table: PageTable) -> FakeCache:
        """Nothing seen yet."""
        return FakeCache(self._pages, table)

    def step(self, slices: Sequence[tuple[FakeCache, Sequence[int]]]) -> Logits:
        """Advance all states; [B, V]."""
        assert len({id(cache) for cache, _ in slices}) == len(slices), "one state twice in a step"
        self.steps.append([len(tokens) for _, tokens in slices])
        slices[0][0].extend(slices[0][1])  # a failing step leaves a state half advanced
        if self.before_step is not None:
            self.before_step([list(tokens) for _, tokens in slices])
        for cache, tokens in slices[1:]:
            assert tokens
            cache.extend(tokens)
        return np.stack([self.logits(tuple(cache.tokens)) for cache, _ in slices])

    def logits(self, tokens: tuple[int, ...]) -> Logits:
        """What the model would say after these tokens."""
        key = zlib.crc32(repr(tokens).encode())
        logits = np.random.default_rng(key).standard_normal(self.vocab).astype(np.float32)
        if self.next_token is not None:
            logits[self.next_token(tokens)] = 50.0
        return logits

    def continuation(self, prompt: tuple[int, ...], count: int) -> list[int]:
        """The greedy answer, computed without any engine."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(np.argmax(self.logits(tuple(tokens)))))
        return tokens[len(prompt) :]
