"""The engine thread: right answers whatever runs beside, ends, cancellation, faults."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.pages import PageTable
from engine.core import (
    CacheKind,
    Event,
    Finished,
    FinishReason,
    Generated,
    Logits,
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
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeCache, FakeRunner, FakeSnapshot


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


def test_a_request_that_breaks_a_step_fails_alone() -> None:
    def break_on_49(slices: list[list[int]]) -> None:
        if any(49 in tokens for tokens in slices):
            raise RuntimeError("boom")

    runner = FakeRunner(VOCAB - 1, before_step=break_on_49)
    prompts = [tuple(token % 48 for token in prompt(30, n)) for n in range(2)]
    with running(runner) as engine:
        good = [submit(engine, request(f"g{n}", entry, 20)) for n, entry in enumerate(prompts)]
        bad = submit(engine, request("bad", (*prompts[0][:17], 49)))
        failed = bad.wait()
        reasons = [answer.wait().reason for answer in good]

    assert FinishReason.FAILED is failed.reason
    assert [FinishReason.LENGTH] * 2 == reasons
    assert [runner.continuation(entry, 20) for entry in prompts] == [answer.tokens for answer in good]


def test_branches_that_start_over_wait_for_the_room_that_they_no_longer_share() -> None:
    """Four branches of one prompt fit because they share it; after a step that broke they do not."""
    broken = threading.Event()

    def break_once(slices: list[list[int]]) -> None:
        if len(slices) == 4 and not broken.is_set():
            broken.set()
            raise RuntimeError("boom")

    runner = FakeRunner(VOCAB, ledger=ledger(pages=90), before_step=break_once)
    engine = Engine(runner, replace(LIMITS, max_sequences=4, anchor_every=1000), threaded=False)
    prompts = [(*prompt(200)[:199], last) for last in range(4)]
    answers = [submit(engine, request("first", prompts[0], 20))]
    while not any(state.anchors for state in engine._states.values()):
        engine.turn()
    prompts.append(prompt(40, 3))  # it waits for a slot when the step breaks
    for number, entry in enumerate(prompts[1:]):
        answers.append(submit(engine, request(f"r{number}", entry, 20)))
        if number < 2:
            engine.turn()
    while not engine.turn():
        engine._scheduler.check()
    reasons = [answer.wait().reason for answer in answers]
    engine.close()

    assert broken.is_set(), "all four must have been in one step"
    assert [FinishReason.LENGTH] * 5 == reasons
    assert [runner.continuation(branch, 20) for branch in prompts] == [answer.tokens for answer in answers]


def test_unusable_logits_fail_only_their_request() -> None:
    class Poisoned(FakeRunner):
        def logits(self, tokens: tuple[int, ...]) -> Logits:
            logits = super().logits(tokens)
            return np.full_like(logits, np.nan) if tokens[0] == 13 else logits

    runner = Poisoned(VOCAB)
    with running(runner) as engine:
        good = submit(engine, request("g", prompt(10), 20))
        bad = submit(engine, request("b", (13, 1, 2)))
        reasons = (good.wait().reason, bad.wait().reason)
        stats = engine.stats()

    assert (FinishReason.LENGTH, FinishReason.FAILED) == reasons
    assert (1, 1) == (stats.counters["requests_completed"], stats.counters["requests_failed"])


class Frail(FakeRunner):
    """No memory for what a test names: a kept place of a state, or a new state after so many others."""

    kept_with: int | None = None  # a token
    states: int = 1000

    def new_cache(self, table: PageTable) -> FakeCache:
        self.states -= 1
        if self.states < 0:
            raise RuntimeError("out of memory")
        return FrailCache(self._pages, table, unkept=self.kept_with)


@dataclass(slots=True)
class FrailCache(FakeCache):
    unkept: int | None = None

    def snapshot(self) -> FakeSnapshot:
        if self.unkept in self.tokens:
            raise RuntimeError("out of memory")
        return FakeSnapshot(self.length)


def test_a_request_whose_state_cannot_be_kept_fails_alone() -> None:
    runner = Frail(VOCAB - 1)
    runner.kept_with = 49
    good = tuple(token % 48 for token in prompt(30))
    with running(runner) as engine:
        answers = [
            submit(engine, request("g", good, 20)),
            submit(engine, request("b", (*good[:17], 49, 1, 2))),
        ]
        reasons = [answer.wait().reason for answer in answers]
        complete(engine, request("later", good))

    assert [FinishReason.LENGTH, FinishReason.FAILED] == reasons
    assert runner.continuation(good, 20) == answers[0].tokens


def test_a_request_that_cannot_start_over_fails_alone() -> None:
    def break_pairs(slices: list[list[int]]) -> None:
        if len(slices) > 1:
            runner.states = 1
            raise RuntimeError("boom")

    runner = Frail(VOCAB, before_step=break_pairs)
    engine = Engine(runner, LIMITS, threaded=False)
    answers = [submit(engine, request(name, prompt(3, n), 4)) for n, name in enumerate("ab")]
    while not engine.turn():
        pass

    assert [FinishReason.LENGTH, FinishReason.FAILED] == [answer.wait().reason for answer in answers]
    assert runner.continuation(prompt(3, 0), 4) == answers[0].tokens
    engine.close()


def test_all_rows_of_a_step_are_told_together() -> None:
    """A wake-up between two of them lets the woken thread take the interpreter while the rest is drawn."""
    heard: list[str] = []
    engine = Engine(FakeRunner(VOCAB), LIMITS, threaded=False, told=lambda: heard.append("told"))
    for name in "abc":
        engine.submit(request(name, prompt(3), 4), lambda event: heard.append(type(event).__name__))
    while not engine.turn():
        pass
    engine.close()
    steps = " ".join(heard).split(" told")

    assert ["Started Started Started", *[" Generated Generated Generated"] * 3] == steps[:4]
    assert " Generated Finished Generated Finished Generated Finished" == steps[4]
    assert [""] == steps[5:]


def test_a_sink_that_breaks_keeps_nothing_from_others() -> None:
    heard: list[Event] = []
    breaks = iter([False, True])

    def sink(_: Event) -> None:
        if next(breaks, False):
            raise ValueError("a fault of ours")

    engine = Engine(FakeRunner(VOCAB), LIMITS, threaded=False)
    engine.submit(request("a", prompt(3), 4), sink)
    engine.submit(request("b", prompt(3), 1), heard.append)
    engine.turn()
    with pytest.raises(ValueError, match="of ours"):
        engine.turn()
    engine.close()

    assert [Started, Generated, Finished] == [type(event) for event in heard]


class Once(FakeRunner):
    """No memory for the next new state, once, when a test says so."""

    lacking: bool = False

    def new_cache(self, table: PageTable) -> FakeCache:
        lacking, self.lacking = self.lacking, False
        if lacking:
            raise MemoryError("no memory for a state")
        return super().new_cache(table)


def test_a_request_whose_source_failed_in_the_same_turn_starts_from_nothing() -> None:
    """The kept sequence must yield to the first request, so that the second one can only start from that."""
    runner = Once(VOCAB, ledger=ledger(pages=24))
    limits = replace(LIMITS, anchor_every=20)
    engine = Engine(runner, limits, threaded=False)
    kept = submit(engine, request("kept", prompt(100), 1))
    while not engine.turn():
        pass
    kept.wait()
    answers = [submit(engine, request(name, prompt(25), 1)) for name in "ab"]
    runner.lacking = True
    engine._read_inbox(wait=False)
    plan = engine._scheduler.plan()
    engine._execute(plan)
    while not engine.turn():
        engine._scheduler.check()
    ends = [answer.wait().reason for answer in answers]
    engine.close()

    assert "a" == plan.admissions[1].source, "the second was to start from the first"
    assert [FinishReason.FAILED, FinishReason.LENGTH] == ends
    assert answers[1].started == Started(0, CacheKind.COLD)
    assert runner.continuation(prompt(25), 1) == answers[1].tokens


def test_a_request_that_goes_on_where_another_ended_needs_no_new_state() -> None:
    runner = Once(VOCAB)
    with running(runner) as engine:
        first = complete(engine, request("a", prompt(30)))
        runner.lacking = True
        longer = (*prompt(30), *first.tokens, 3)
        second = complete(engine, request("b", longer))

    assert second.started == Started(34, CacheKind.WARM)
    assert runner.continuation(longer, 5) == second.tokens


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
