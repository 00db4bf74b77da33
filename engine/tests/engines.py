"""Engines over the fake runner, as the tests of the loop want them, and waiting for their answers."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.cache.shelf import Shelf
from engine.core import (
    Event,
    Finished,
    FinishReason,
    Generated,
    Request,
    SamplingParams,
    Started,
)
from engine.loop import Engine
from engine.scheduler.scheduler import SchedulerLimits
from engine.tests.fake_runner import FakeRunner

VOCAB = 50
GREEDY = SamplingParams(temperature=0.0)
LIMITS = SchedulerLimits(
    context=400, max_sequences=3, prefill_chunk=16, prefill_chunk_live=5, anchor_every=24, max_records=4
)


@dataclass(slots=True)
class Answer:
    """Collects the events of one request."""

    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    tokens: list[int] = field(default_factory=list)
    started: Started | None = None

    def wait(self) -> Finished:
        while True:
            event = self.events.get(timeout=20)
            if isinstance(event, Finished):
                return event
            if isinstance(event, Started):
                self.started = event
            else:
                self.tokens.append(event.token)

    def wait_for_token(self) -> int:
        while True:
            event = self.events.get(timeout=20)
            assert not isinstance(event, Finished)
            if isinstance(event, Generated):
                self.tokens.append(event.token)
                return event.token


@contextmanager
def running(
    runner: FakeRunner, limits: SchedulerLimits = LIMITS, shelf: Shelf | None = None
) -> Iterator[Engine]:
    engine = Engine(runner, limits, shelf=shelf)
    try:
        yield engine
    finally:
        engine.close()


def slow_runner() -> FakeRunner:
    """Slow enough that a request for hundreds of tokens is still open when the test goes on."""
    return FakeRunner(VOCAB, before_step=lambda _: time.sleep(0.005))


def request(name: str, prompt: tuple[int, ...], count: int = 5, **options: object) -> Request:
    return Request(name, prompt, count, sampling=GREEDY, **options)  # type: ignore[arg-type]


def submit(engine: Engine, asked: Request) -> Answer:
    answer = Answer()
    engine.submit(asked, answer.events.put)
    return answer


def complete(engine: Engine, asked: Request) -> Answer:
    answer = submit(engine, asked)
    assert answer.wait().reason is FinishReason.LENGTH
    return answer


def prompt(length: int, first: int = 1) -> tuple[int, ...]:
    return tuple((first + 7 * index) % VOCAB for index in range(length))
