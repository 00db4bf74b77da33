"""One caller in the simulation: what it was told, and what it should have been told.

Every token is held against the answer computed from the prompt alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.core import Allowance, Event, Finished, FinishReason, Generated, Request, SamplingParams, Started
from engine.sampling import draw
from engine.tests.simulation.model import NAN, POISON, STOP, Steering, digest, row
from engine.tests.simulation.scenario import Visitor
from engine.tickets import MAX_REPLACED

_SPECIAL = {"poison": POISON, "nan": NAN}


def request_of(visitor: Visitor, name: str, *, follows: str | None = None) -> Request:
    """What a visitor asks; prompts of one family begin alike."""
    prompt = [(7 * visitor.family + index * (1 + visitor.family)) % 19 for index in range(visitor.length)]
    if visitor.fault in _SPECIAL:
        prompt[visitor.length // 2] = _SPECIAL[visitor.fault]
    steered = visitor.rule != "none" or visitor.fault == "rule"
    return Request(
        id=name,
        prompt=tuple(prompt),
        max_tokens=visitor.budget,
        sampling=SamplingParams(temperature=visitor.temperature),
        seed=visitor.seed,
        stop_ids=frozenset({STOP}) if visitor.stops else frozenset(),
        reuse=visitor.reuse,
        rule=Steering(visitor) if steered else None,
        follows=follows if visitor.reuse else None,
    )


@dataclass(slots=True)
class Answer:
    """The right answer of a request, token by token, without any engine."""

    request: Request
    visitor: Visitor
    tokens: list[int] = field(default_factory=list)
    _ahead: deque[int] = field(default_factory=deque)
    _state: int = 1
    _taken: tuple[int, ...] = ()
    _replaced: int = 0
    _rule: Steering | None = None

    def __post_init__(self) -> None:
        self._state = digest(self.request.prompt)
        self._rule = Steering(self.visitor) if self.request.rule else None

    def peek(self) -> int:
        """The next token, which may be one that stops."""
        if not self._ahead:
            allowance = self._rule.next(self._taken) if self._rule else Allowance()
            if self._replaced >= MAX_REPLACED:
                allowance = Allowance(allowance.forced, allowance.allowed, allowance.greedy)
            position = len(self.request.prompt) + len(self.tokens)
            drawn = draw(row(self._state), self.request, allowance, position=position)
            self._replaced += drawn.replaced
            self._ahead.extend(generated.token for generated in drawn.tokens)
            self._taken = tuple(self._ahead)
        return self._ahead[0]

    def take(self) -> int:
        """The next token, which becomes part of the answer."""
        token = self.peek()
        self._ahead.popleft()
        self.tokens.append(token)
        self._state = digest((token,), self._state)
        return token


@dataclass(slots=True)
class Guest:
    """A visitor that was let in."""

    visitor: Visitor
    request: Request
    room: int
    promised: int  # tokens of its answer that it gets whatever others need
    answer: Answer = field(init=False)
    heard: int = 0
    unread: int = 0
    started: bool = False
    left_at: int | None = None  # the turn in which it left
    finished: FinishReason | None = None

    def __post_init__(self) -> None:
        self.answer = Answer(self.request, self.visitor)

    @property
    def budget(self) -> int:
        """Tokens it gets if nothing stops it."""
        return min(self.request.max_tokens, self.room)

    def hear(self, event: Event) -> None:
        """Take in an event; AssertionError when it is not the one that must come now."""
        assert self.finished is None, f"{self.request.id} hears {event} after its end"
        self.heard += 1
        self.unread += 1
        if isinstance(event, Started):
            assert not self.started, f"{self.request.id} started twice"
            assert event.cached_tokens < len(self.request.prompt)
            self.started = True
        elif isinstance(event, Generated):
            assert self.started, f"{self.request.id} has a token before its start"
            wanted = self.answer.take()
            assert event.token == wanted, (self.request.id, len(self.answer.tokens), event.token, wanted)
            assert len(self.answer.tokens) <= self.budget, f"{self.request.id} exceeds its budget"
        else:
            self._finish(event)

    def _finish(self, event: Finished) -> None:
        self.finished = event.reason
        done = len(self.answer.tokens)
        assert event.timings.generated_tokens == done, (self.request.id, event.timings, done)
        if event.reason is FinishReason.LENGTH:
            least = min(self.budget, self.promised)
            assert least <= done <= self.budget, (
                f"{self.request.id} ends after {done} of {self.budget} tokens"
            )
            assert self.visitor.fault != "poison"
        elif event.reason is FinishReason.STOP:
            assert done < self.budget, f"{self.request.id} stops beyond its budget"
            assert self.answer.peek() in self.request.stop_ids, f"{self.request.id} stops for nothing"
        elif event.reason is FinishReason.FAILED:
            assert event.message, f"{self.request.id} fails without a word"
