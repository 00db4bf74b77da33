"""A runner without a model and a clock without time, made to be fast.

The state of a sequence is a digest of its tokens, and the logits are a function of it: a state that missed,
repeated or borrowed a token continues differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.pages import Ledger, PageTable
from engine.core import Allowance, Logits
from engine.errors import RuleError
from engine.tests.fake_pages import TokenPages
from engine.tests.simulation.scenario import Visitor

VOCAB = 24
STATE_BYTES = 10
STOP, NAN, POISON = 21, 22, 23  # the last two never follow anything; only prompts hold them
_STATES = 61
_BITS = 2**61 - 1


def _table() -> Logits:
    rows = np.random.default_rng(5).standard_normal((_STATES, VOCAB)).astype(np.float32)
    rows[:, [NAN, POISON]] = -20.0
    rows[::7, STOP] = 9.0
    return rows


ROWS = _table()


def digest(tokens: Iterable[int], start: int = 1) -> int:
    """The state after some tokens."""
    state = start
    for token in tokens:
        state = (state * 1_000_003 + token + 1) % _BITS
    return state


@dataclass(frozen=True, slots=True)
class Frozen:
    """A kept state."""

    length: int
    state: int
    spoiled: bool
    nbytes: int = STATE_BYTES


@dataclass(slots=True)
class State:
    """The state of one sequence; `spoiled` once it has seen the token that makes its logits NaN."""

    pages: TokenPages
    table: PageTable
    length: int = 0
    state: int = 1
    spoiled: bool = False

    @property
    def own_bytes(self) -> int:
        """A pretended size."""
        return STATE_BYTES

    def take(self, tokens: Sequence[int]) -> None:
        """Advance."""
        self.pages.write(self.table, self.length, tokens)
        self.length += len(tokens)
        self.state = digest(tokens, self.state)
        self.spoiled = self.spoiled or NAN in tokens

    def snapshot(self) -> Frozen:
        """Freeze."""
        return Frozen(self.length, self.state, self.spoiled)

    def arrays(self, anchors: Mapping[int, Frozen]) -> dict[str, NDArray[Any]]:
        """Nothing is stored in the simulation."""
        raise NotImplementedError

    def fill(
        self, length: int, anchors: Sequence[int], arrays: Mapping[str, NDArray[Any]]
    ) -> dict[int, Frozen]:
        """Nothing is stored in the simulation."""
        raise NotImplementedError

    def resume(self, snapshot: Frozen, copied: tuple[int, int] | None) -> None:
        """Begin at a frozen place."""
        self.pages.copy(copied)
        self.length, self.state, self.spoiled = snapshot.length, snapshot.state, snapshot.spoiled


@dataclass(slots=True)
class Runner:
    """Advances states; the calls numbered in `faults` fail half-way, as does every call with poison in it.

    For the new states numbered in `faults` there is no memory.
    """

    faults: frozenset[int]
    ledger: Ledger
    device_bytes: int = 0
    now: float = 0.0
    calls: int = 0
    made: int = 0  # new states that were asked for, and how many of them there was no memory for
    unmade: int = 0
    last: list[int] = field(default_factory=list)  # tokens of each slice of the last call
    pages: TokenPages = field(init=False)

    def __post_init__(self) -> None:
        self.pages = TokenPages(self.ledger)

    def clock(self) -> float:
        """Seconds, as the engine is told."""
        return self.now

    def new_cache(self, table: PageTable) -> State:
        """Nothing seen yet."""
        self.made += 1
        if self.made in self.faults:
            self.unmade += 1
            raise MemoryError("no memory for this state")
        return State(self.pages, table)

    def step(self, slices: Sequence[tuple[Any, Sequence[int]]]) -> Logits:
        """Advance all states; [B, V]."""
        assert len({id(state) for state, _ in slices}) == len(slices), "one state twice in a step"
        self.calls += 1
        self.last = [len(tokens) for _, tokens in slices]
        self.now += 0.01 + 0.001 * sum(self.last)
        for state, tokens in slices:
            assert tokens, "an empty slice"
            state.take(tokens)
            if POISON in tokens or self.calls in self.faults:
                raise ArithmeticError("this step breaks")
        found = ROWS[[state.state % _STATES for state, _ in slices]]
        for row, (state, _) in enumerate(slices):
            if state.spoiled:
                found[row] = np.nan
        return found


def row(state: int) -> Logits:
    """The logits after a state."""
    found: Logits = ROWS[state % _STATES]
    return found


@dataclass(slots=True)
class Steering:
    """The rule of a visitor: a pure function of how many ids were taken."""

    visitor: Visitor
    count: int = 0

    def next(self, taken: tuple[int, ...]) -> Allowance:
        """What may follow."""
        self.count += len(taken)
        if self.visitor.fault == "rule" and self.count >= self.visitor.seed:
            raise RuleError("this rule breaks")
        if self.visitor.rule == "forced" and self.count % 4 == 1:
            return Allowance(forced=tuple(range(3 + self.count % 3)))
        if self.visitor.rule == "bounded":
            allowed = np.zeros(VOCAB, dtype=np.bool_)
            allowed[[self.count % 5, 7]] = True
            return Allowance(allowed=allowed, greedy=self.count % 2 == 0)
        if self.visitor.rule == "reluctant":
            return Allowance(reluctant=frozenset({STOP, *range(12)}))
        return Allowance()


class Inline(Executor):
    """Does everything at once, on the thread that asks."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
