"""The engine thread: right answers whatever runs beside, ends, cancellation, refusal, closing."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import (
    CacheKind,
    FinishReason,
    Request,
    SamplingParams,
    Started,
)
from engine.errors import CapacityError, ContextLengthError, NotReadyError, RequestError
from engine.loop import Engine
from engine.scheduler.scheduler import Scheduler, SchedulerLimits
from engine.tests.engines import (
    LIMITS,
    VOCAB,
    complete,
    prompt,
    request,
    running,
    slow_runner,
    submit,
)
from engine.tests.fake_runner import FakeRunner


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 90), st.integers(0, 3), st.integers(1, 12), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_answers_do_not_depend_on_neighbours_chunks_or_caches(
    asked: list[tuple[int, int, int, bool]],
) -> None:
    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        requests = [
            request(f"r{index}", prompt(length, first), count, reuse=reuse)
            for index, (length, first, count, reuse) in enumerate(asked)
        ]
        answers = [submit(engine, entry) for entry in requests]
        for answer in answers:
            answer.wait()

    for entry, answer in zip(requests, answers, strict=True):
        assert runner.continuation(entry.prompt, entry.max_tokens) == answer.tokens


def test_a_seed_gives_the_same_draws_alone_and_in_company() -> None:
    sampling = SamplingParams(temperature=1.5)

    def draw(company: int) -> list[int]:
        with running(FakeRunner(VOCAB)) as engine:
            others = [submit(engine, request(f"o{n}", prompt(40, n), 30)) for n in range(company)]
            answer = submit(engine, Request("a", prompt(20), 10, sampling, seed=-5))
            for entry in (answer, *others):
                entry.wait()
            return answer.tokens

    assert draw(0) == draw(4)


def test_a_stop_id_ends_the_answer_and_is_not_part_of_it() -> None:
    runner = FakeRunner(VOCAB, next_token=lambda tokens: 3 if len(tokens) == 24 else 8)
    with running(runner) as engine:
        answer = submit(engine, request("a", prompt(20), 50, stop_ids=frozenset({3})))
        finished = answer.wait()

    assert [8] * 4 == answer.tokens
    assert (FinishReason.STOP, 4) == (finished.reason, finished.timings.generated_tokens)


def test_a_banned_id_is_never_drawn() -> None:
    runner = FakeRunner(VOCAB, next_token=lambda _: 8)
    with running(runner) as engine:
        answer = submit(engine, request("a", prompt(20), 20, banned_ids=(8,)))
        answer.wait()

    assert 8 not in answer.tokens


def test_a_budget_of_zero_computes_the_prompt_and_ends() -> None:
    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        finished = submit(engine, request("a", prompt(20), 0)).wait()
        again = complete(engine, request("b", prompt(20)))

    assert (FinishReason.LENGTH, 0) == (finished.reason, finished.timings.generated_tokens)
    assert again.started == Started(19, CacheKind.FORK)


def test_a_running_request_can_be_cancelled_and_its_prefix_is_kept() -> None:
    with running(slow_runner()) as engine:
        answer = submit(engine, request("a", prompt(20), 350))
        answer.wait_for_token()
        engine.cancel("a")
        finished = answer.wait()
        again = complete(engine, request("b", prompt(20)))

    assert FinishReason.CANCELLED is finished.reason
    assert again.started == Started(19, CacheKind.FORK)


def test_a_waiting_request_can_be_cancelled() -> None:
    gate = threading.Event()
    runner = FakeRunner(VOCAB, before_step=lambda _: gate.wait(10))
    with running(runner) as engine:
        answers = [submit(engine, request(f"r{n}", prompt(10, n), 2)) for n in range(5)]
        engine.cancel("r4")
        gate.set()
        reasons = [answer.wait().reason for answer in answers]

    assert [FinishReason.LENGTH] * 4 + [FinishReason.CANCELLED] == reasons


def test_a_request_that_comes_while_the_engine_closes_is_ended() -> None:
    engine = Engine(FakeRunner(VOCAB), LIMITS, threaded=False)
    closing = threading.Thread(target=engine.close)
    engine._inbox = Slow(closing)  # type: ignore[assignment]
    engine._thread = threading.Thread(target=engine._run)
    engine._thread.start()
    answer = submit(engine, request("late", prompt(5)))

    assert answer.wait().reason in (FinishReason.CANCELLED, FinishReason.FAILED, FinishReason.LENGTH)
    closing.join(20)


class Slow:
    """An inbox on the way to which the engine is told to close."""

    def __init__(self, closing: threading.Thread) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closing: threading.Thread | None = closing

    def put(self, command: Any) -> None:
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.start()
            closing.join(0.2)
        self._queue.put(command)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def test_a_full_queue_refuses_at_once() -> None:
    gate = threading.Event()
    limits = SchedulerLimits(context=400, max_sequences=1, queue_depth=2)
    with running(FakeRunner(VOCAB, before_step=lambda _: gate.wait(10)), limits) as engine:
        for n in range(3):
            submit(engine, request(f"r{n}", prompt(10, n)))
        with pytest.raises(CapacityError):
            submit(engine, request("late", prompt(10)))
        gate.set()


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    with running(FakeRunner(VOCAB)) as engine, pytest.raises(ContextLengthError):
        submit(engine, request("a", prompt(400)))


def test_closing_ends_open_requests_and_refuses_new_ones() -> None:
    engine = Engine(slow_runner(), LIMITS)
    answer = submit(engine, request("a", prompt(20), 350))
    answer.wait_for_token()
    engine.close()

    assert FinishReason.CANCELLED is answer.wait().reason
    with pytest.raises(NotReadyError):
        submit(engine, request("b", prompt(20)))


def test_closing_right_after_an_answer_never_hangs() -> None:
    for round_number in range(30):
        engine = Engine(FakeRunner(VOCAB), LIMITS)
        complete(engine, request("a", prompt(2 + round_number % 3), 1))
        closer = threading.Thread(target=engine.close)
        closer.start()
        closer.join(10)

        assert not closer.is_alive()


def test_decoding_goes_on_while_a_long_prompt_is_read() -> None:
    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        first = submit(engine, request("a", prompt(10), 200))
        first.wait_for_token()
        second = submit(engine, request("b", prompt(90, 2), 5))
        second.wait()
        first.wait()

    mixed = [step for step in runner.steps if len(step) == 2 and 1 in step and max(step) > 1]
    assert len(mixed) >= 90 // LIMITS.prefill_chunk_live
    assert max(max(step) for step in mixed) <= LIMITS.prefill_chunk_live


def test_counters_add_up() -> None:
    with running(FakeRunner(VOCAB)) as engine:
        for n in range(3):
            complete(engine, request(f"r{n}", prompt(30)))
        counters = engine.stats().counters

    assert (3, 3) == (counters["requests_started"], counters["requests_completed"])
    assert 90 == counters["tokens_prefilled_computed"] + counters["tokens_prefilled_cached"]
    assert 15 == counters["tokens_decoded"]


def test_an_engine_whose_step_hangs_says_for_how_long() -> None:
    gate = threading.Event()
    with running(FakeRunner(VOCAB, before_step=lambda _: gate.wait(20))) as engine:
        idle = engine.stalled_s
        answer = submit(engine, request("a", prompt(10)))
        time.sleep(0.05)
        hanging = engine.stalled_s
        gate.set()
        answer.wait()
        after = engine.stalled_s

    assert (0.0, 0.0) == (idle, after)
    assert 0.05 <= hanging < 20


def test_an_empty_prompt_is_refused_at_once() -> None:
    with running(FakeRunner(VOCAB)) as engine, pytest.raises(RequestError, match="prompt is empty"):
        submit(engine, request("a", ()))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_invariant_ends_the_engine_when_it_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(FakeRunner(VOCAB)) as engine:
        complete(engine, request("a", prompt(5)))
        monkeypatch.setattr(Scheduler, "check", broken)
        complete(engine, request("b", prompt(6)))
        until_closed(engine)

        with pytest.raises(NotReadyError):
            submit(engine, request("c", prompt(7)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_scheduler_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(slow_runner()) as engine:
        answers = [submit(engine, request(name, prompt(5, n), 300)) for n, name in enumerate("ab")]
        answers[0].wait_for_token()
        for name in ("plan", "drop", "release"):
            monkeypatch.setattr(Scheduler, name, broken)
        ends = [answer.wait() for answer in answers]
        stats = engine.stats()

    assert [(FinishReason.FAILED, "the engine stopped")] * 2 == [(end.reason, end.message) for end in ends]
    assert (0, 0) == (stats.running, stats.queued)


def broken(*_: object) -> None:
    """An invariant that does not hold."""
    raise AssertionError("pages do not add up")


def until_closed(engine: Engine) -> None:
    """Wait for the engine's thread to end by itself."""
    deadline = time.monotonic() + 10
    while engine.accepting:
        assert time.monotonic() < deadline
        time.sleep(0.005)
