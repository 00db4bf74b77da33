"""The loaded model behind the engine: same answers alone, in company, cold, cached and cut into chunks."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine import runner
from engine.config import EngineSettings, Settings
from engine.core import Event, Finished, FinishReason, Generated, Request, SamplingParams, Started
from engine.model.selfcheck import Exactness
from engine.server.loading import load_service
from engine.server.service import Service

COUNT = 6
GREEDY = SamplingParams(temperature=0.0)
DRAWN = SamplingParams(temperature=1.0, min_p=0.01)


@pytest.fixture(scope="module")
def model(small_path: Path) -> Iterator[Service]:
    settings = Settings(engine=EngineSettings(threads=1, prefill_chunk=40, prefill_chunk_live=7))
    service = load_service(small_path, settings)
    yield service
    service.engine.close()


def prompt(service: Service, length: int, step: int) -> tuple[int, ...]:
    return tuple(3 + (step * index) % (len(service.tokenizer) - 3) for index in range(length))


def submit(service: Service, request: Request) -> queue.SimpleQueue[Event]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    service.engine.submit(request, events.put)
    return events


def collect(events: queue.SimpleQueue[Event]) -> tuple[list[int], int]:
    """Tokens and how many of the prompt were cached."""
    tokens: list[int] = []
    cached = 0
    while not isinstance(event := events.get(timeout=120), Finished):
        if isinstance(event, Generated):
            tokens.append(event.token)
        elif isinstance(event, Started):
            cached = event.cached_tokens
    assert event.reason is FinishReason.LENGTH
    return tokens, cached


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_answers_are_the_same_alone_and_in_company(model: Service, sampling: SamplingParams) -> None:
    requests = [
        Request(f"r{n}", prompt(model, 30 + 23 * n, 5 + n), COUNT, sampling, seed=n, reuse=False)
        for n in range(4)
    ]
    alone = [collect(submit(model, request)) for request in requests]
    together = [submit(model, replace(request, id=f"{request.id}b")) for request in requests]

    assert alone == [collect(events) for events in together]


def test_answers_are_the_same_cold_repeated_and_continued(model: Service) -> None:
    asked = Request("cold", prompt(model, 150, 11), COUNT, GREEDY, reuse=False)
    cold, _ = collect(submit(model, asked))
    first, _ = collect(submit(model, replace(asked, id="first", reuse=True)))
    again, cached = collect(submit(model, replace(asked, id="again", reuse=True)))
    longer = (*asked.prompt, *cold[:-1], *prompt(model, 20, 3))
    warm, kept = collect(submit(model, replace(asked, id="warm", prompt=longer, reuse=True)))
    fresh, _ = collect(submit(model, replace(asked, id="fresh", prompt=longer)))

    assert (cold, cold, 149) == (first, again, cached)
    assert (fresh, 150 + COUNT - 1) == (warm, kept)


def test_a_machine_that_changes_rows_is_told_at_the_start(
    small_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "check_rows", lambda _: Exactness(("matmul 64 to 96",), 0.1))
    load_service(small_path, Settings(engine=EngineSettings(threads=1))).engine.close()

    assert ["WARNING"] == [record.levelname for record in caplog.records]
    assert "NOT exact on this machine" in caplog.text
    assert "matmul 64 to 96" in caplog.text


def test_requests_that_are_cancelled_at_any_state_give_all_pages_back(small_path: Path) -> None:
    limits = EngineSettings(threads=1, max_sequences=4, prefill_chunk=20, prefill_chunk_live=5)
    service = load_service(small_path, Settings(engine=limits))
    engine = service.engine
    for number in range(40):
        asked = Request(f"r{number}", prompt(service, 10 + 7 * (number % 9), 3), 30, DRAWN, reuse=False)
        events = submit(service, asked)
        for _ in range(number % 5):
            if isinstance(events.get(timeout=60), Finished):
                break
        engine.cancel(asked.id)
    engine.close()
    stats = engine.stats()

    assert (0, 0) == (stats.running, stats.queued)
    assert 0 == engine._runner._pool.ledger.used  # type: ignore[attr-defined]
