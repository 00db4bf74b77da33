"""The engine thread: right answers whatever runs beside, cache reuse, cancellation, faults."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.shelf import Shelf
from engine.core import (
    Allowance,
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
from engine.errors import CapacityError, ContextLengthError, NotReadyError, RequestError, RuleError
from engine.loop import Engine
from engine.scheduler.scheduler import Scheduler, SchedulerLimits
from engine.tests.fake_pages import ledger
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


def test_the_same_prompt_again_is_cached_except_its_last_token() -> None:
    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        first = complete(engine, request("a", prompt(60)))
        again = complete(engine, request("b", prompt(60)))

    assert first.started == Started(0, CacheKind.COLD)
    assert again.started == Started(59, CacheKind.FORK)
    assert first.tokens == again.tokens


def test_a_follow_up_continues_the_finished_sequence_in_place() -> None:
    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        first = complete(engine, request("a", prompt(60)))
        longer = (*prompt(60), *first.tokens, 1, 2, 3)
        second = complete(engine, request("b", longer))
        stats = engine.stats()

    assert second.started == Started(64, CacheKind.WARM)
    assert runner.continuation(longer, 5) == second.tokens
    assert stats.records == 1


def test_a_sequence_that_is_continued_is_no_kept_one_meanwhile() -> None:
    with running(slow_runner()) as engine:
        first = complete(engine, request("a", prompt(60)))
        second = submit(engine, request("b", (*prompt(60), *first.tokens, 1, 2, 3), 300))
        second.wait_for_token()
        stats = engine.stats()

    assert (0, 0) == (stats.records, stats.memory.warm)


def test_a_common_head_is_reused_from_the_grid() -> None:
    with running(FakeRunner(VOCAB)) as engine:
        complete(engine, request("a", prompt(60)))
        other = complete(engine, request("b", (*prompt(50), 9, 9, 9)))

    assert other.started == Started(48, CacheKind.FORK)


def test_prompts_that_differ_early_share_nothing() -> None:
    with running(FakeRunner(VOCAB)) as engine:
        complete(engine, request("a", prompt(60, 1)))
        other = complete(engine, request("b", prompt(60, 2)))

    assert other.started == Started(0, CacheKind.COLD)


def test_a_request_without_reuse_neither_takes_nor_leaves_a_prefix() -> None:
    with running(FakeRunner(VOCAB)) as engine:
        complete(engine, request("a", prompt(60), reuse=False))
        second = complete(engine, request("b", prompt(60)))
        third = complete(engine, request("c", prompt(60), reuse=False))

    assert (0, 0) == (
        second.started and second.started.cached_tokens,
        third.started and third.started.cached_tokens,
    )


def test_kept_sequences_yield_to_new_ones_when_memory_is_short() -> None:
    runner = FakeRunner(VOCAB, ledger=ledger(pages=40))
    limits = SchedulerLimits(context=400, max_records=100)
    with running(runner, limits) as engine:
        for first in range(8):
            complete(engine, request(f"r{first}", prompt(60, first)))
        stats = engine.stats()

    assert 320 == stats.memory.total
    assert 8 * 8 + 20 <= stats.memory.used <= 320
    assert 3 == stats.records
    assert 5 == stats.counters["evictions_warm"]


def test_a_request_for_which_nothing_can_yield_is_refused_at_once_and_alone() -> None:
    runner = FakeRunner(VOCAB, before_step=lambda _: time.sleep(0.005), ledger=ledger(pages=40))
    limits = SchedulerLimits(context=400, max_records=100)
    with running(runner, limits) as engine:
        first = submit(engine, request("a", prompt(150), 80))
        first.wait_for_token()
        refused = submit(engine, request("b", prompt(60, 2), 20)).wait()
        small = submit(engine, request("c", prompt(5, 3), 4)).wait()
        finished = first.wait()
        counters = engine.stats().counters

    assert FinishReason.REFUSED is refused.reason
    assert "1 running and 0 waiting requests hold" in str(refused.message)
    assert (FinishReason.LENGTH, FinishReason.LENGTH) == (small.reason, finished.reason)
    assert runner.continuation(prompt(150), 80) == first.tokens
    assert (1, 2) == (counters["requests_rejected"], counters["requests_completed"])


def test_an_answer_whose_next_part_finds_no_memory_ends_as_too_long() -> None:
    runner = FakeRunner(VOCAB, before_step=lambda _: time.sleep(0.002), ledger=ledger(pages=30))
    limits = SchedulerLimits(context=400, tranche=20)
    with running(runner, limits) as engine:
        long = submit(engine, request("a", prompt(20), 300))
        long.wait_for_token()
        other = submit(engine, request("b", prompt(40, 2), 20))
        ends = (long.wait().reason, other.wait().reason)

    assert (FinishReason.LENGTH, FinishReason.LENGTH) == ends
    assert 20 <= len(long.tokens) < 300
    assert runner.continuation(prompt(20), len(long.tokens)) == long.tokens
    assert runner.continuation(prompt(40, 2), 20) == other.tokens


def test_branches_of_a_running_prompt_start_where_it_was_kept() -> None:
    runner = slow_runner()
    with running(runner) as engine:
        first = submit(engine, request("a", prompt(60), 30))
        first.wait_for_token()
        second = submit(engine, request("b", prompt(60), 30))
        second.wait()
        first.wait()

    assert second.started == Started(59, CacheKind.FORK)
    assert runner.continuation(prompt(60), 30) == first.tokens == second.tokens


def shelf(directory: Path) -> Shelf:
    return Shelf(directory, fingerprint="fake", budget=10**6)


def test_a_new_process_finds_the_conversations_of_the_last_one(tmp_path: Path) -> None:
    limits = SchedulerLimits(context=2000)
    with running(FakeRunner(VOCAB), limits, shelf(tmp_path)) as engine:
        first = complete(engine, request("a", prompt(600)))
    runner = FakeRunner(VOCAB)
    longer = (*prompt(600), *first.tokens, 1, 2, 3)
    with running(runner, limits, shelf(tmp_path)) as engine:
        second = complete(engine, request("b", longer))
        other = complete(engine, replace(request("c", longer), tenant="another"))

    assert second.started == Started(604, CacheKind.WARM)
    assert runner.continuation(longer, 5) == second.tokens
    assert other.started == Started(0, CacheKind.COLD)


def test_a_conversation_that_had_to_yield_comes_back_from_disk(tmp_path: Path) -> None:
    runner = FakeRunner(VOCAB, ledger=ledger(pages=130))
    limits = SchedulerLimits(context=2000)
    with running(runner, limits, shelf(tmp_path)) as engine:
        complete(engine, request("a", prompt(600)))
        complete(engine, request("b", prompt(600, 2)))
        while len(list(tmp_path.glob("*.kv"))) < 2:
            time.sleep(0.001)
        again = complete(engine, request("c", (*prompt(600), 9)))
        counters = engine.stats().counters

    assert again.started is not None
    assert 599 <= again.started.cached_tokens
    assert runner.continuation((*prompt(600), 9), 5) == again.tokens
    assert counters["evictions_warm"] >= 2


def test_what_yields_to_a_conversation_from_disk_is_stored_as_it_was(tmp_path: Path) -> None:
    """It must be written before the other one is read into its pages."""
    runner = FakeRunner(VOCAB, ledger=ledger(pages=130))
    limits = SchedulerLimits(context=2000)
    with running(runner, limits, shelf(tmp_path)) as engine:
        complete(engine, request("a", prompt(600)))
        second = complete(engine, request("b", prompt(600, 2)))
        while len(list(tmp_path.glob("*.kv"))) < 2:
            time.sleep(0.001)
        grown = (*prompt(600, 2), *second.tokens, *range(20))
        complete(engine, request("b2", grown))
        complete(engine, request("c", (*prompt(600), 9)))
    runner = FakeRunner(VOCAB)
    with running(runner, limits, shelf(tmp_path)) as engine:
        again = complete(engine, request("b3", (*grown, 9)))

    assert again.started is not None
    assert 620 < again.started.cached_tokens
    assert runner.continuation((*grown, 9), 5) == again.tokens


def test_a_damaged_file_costs_a_computation_and_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = SchedulerLimits(context=2000)
    with running(FakeRunner(VOCAB), limits, shelf(tmp_path)) as engine:
        complete(engine, request("a", prompt(600)))
    (path,) = tmp_path.glob("*.kv")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    runner = FakeRunner(VOCAB)
    with running(runner, limits, shelf(tmp_path)) as engine:
        again = complete(engine, request("b", prompt(600)))

    assert again.started == Started(0, CacheKind.COLD)
    assert runner.continuation(prompt(600), 5) == again.tokens
    assert "its rows are damaged" in caplog.text


def test_tenants_never_share_a_prefix() -> None:
    with running(FakeRunner(VOCAB)) as engine:
        complete(engine, replace(request("a", prompt(60)), tenant="one"))
        other = complete(engine, replace(request("b", prompt(60)), tenant="two"))
        own = complete(engine, replace(request("c", prompt(60)), tenant="one"))

    assert other.started == Started(0, CacheKind.COLD)
    assert own.started == Started(59, CacheKind.FORK)


@pytest.mark.parametrize("length", [60, 200], ids=["asked_for", "by_its_length"])
def test_a_pinned_conversation_outlives_many_short_ones(length: int) -> None:
    runner = FakeRunner(VOCAB, ledger=ledger(pages=60))
    limits = SchedulerLimits(context=400, max_records=100, pin_from=150)
    with running(runner, limits) as engine:
        wish = True if length < 150 else None
        complete(engine, replace(request("deep", prompt(length)), pin=wish))
        for first in range(1, 20):
            complete(engine, request(f"r{first}", prompt(60, first)))
        again = complete(engine, request("again", (*prompt(length), 7)))
        stats = engine.stats()

    assert again.started is not None
    assert length <= again.started.cached_tokens + 1
    assert stats.memory.pinned > 0
    assert stats.counters["evictions_warm"] > 10


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


@dataclass(slots=True)
class Script:
    """A rule that says one allowance after another, the last one for ever."""

    allowances: list[Allowance]
    taken: list[tuple[int, ...]] = field(default_factory=list)

    def next(self, taken: tuple[int, ...]) -> Allowance:
        self.taken.append(taken)
        return self.allowances.pop(0) if len(self.allowances) > 1 else self.allowances[0]


def test_a_rule_forces_ids_and_hears_of_every_id() -> None:
    rule = Script([Allowance(forced=(4, 5, 6)), Allowance()])
    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        other = submit(engine, request("o", prompt(30, 2), 20))
        answer = complete(engine, request("a", prompt(20), 6, rule=rule))
        other.wait()
    after = runner.continuation((*prompt(20), 4, 5, 6), 3)

    assert [4, 5, 6, *after] == answer.tokens
    assert [(), (4, 5, 6), *((token,) for token in after[:-1])] == rule.taken
    assert runner.continuation(prompt(30, 2), 20) == other.tokens


def test_a_rule_bounds_what_is_drawn_also_at_high_temperature() -> None:
    allowed = np.zeros(VOCAB, dtype=np.bool_)
    allowed[[3, 9]] = True
    hot = SamplingParams(temperature=2.0)
    with running(FakeRunner(VOCAB)) as engine:
        asked = Request("a", prompt(20), 40, hot, rule=Script([Allowance(allowed=allowed)]))
        answer = complete(engine, asked)

    assert {3, 9} == set(answer.tokens)


def test_a_reluctant_id_is_replaced_a_bounded_number_of_times() -> None:
    runner = FakeRunner(VOCAB, next_token=lambda _: 7)
    rule = Script([Allowance(reluctant=frozenset({7}))])
    with running(runner) as engine:
        answer = submit(engine, request("a", prompt(20), 100, stop_ids=frozenset({7}), rule=rule))
        finished = answer.wait()

    assert (FinishReason.STOP, 24) == (finished.reason, len(answer.tokens))
    assert 7 not in answer.tokens


def test_a_rule_that_breaks_ends_only_its_request_and_says_why() -> None:
    class Broken:
        def next(self, taken: tuple[int, ...]) -> Allowance:
            raise RuleError(f"the grammar grew too large after {len(taken)} ids")

    runner = FakeRunner(VOCAB)
    with running(runner) as engine:
        good = submit(engine, request("g", prompt(20), 20))
        bad = submit(engine, request("b", prompt(20, 2), 20, rule=Broken())).wait()
        good.wait()

    assert (FinishReason.FAILED, "the grammar grew too large after 0 ids") == (bad.reason, bad.message)
    assert runner.continuation(prompt(20), 20) == good.tokens


def test_probabilities_are_those_of_the_model() -> None:
    runner = FakeRunner(VOCAB)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with running(runner) as engine:
        engine.submit(request("a", prompt(20), 1, top_logprobs=3), events.put)
        events.get(timeout=20)
        generated = events.get(timeout=20)
    logits = runner.logits(prompt(20)).astype(np.float64)
    expected = np.log(np.exp(logits) / np.exp(logits).sum())

    assert isinstance(generated, Generated)
    assert list(np.argsort(-expected)[:3]) == [token for token, _ in generated.top]
    assert [generated.logprob, *sorted(expected)[:-4:-1]] == pytest.approx(
        [expected[generated.token], *(value for _, value in generated.top)]
    )


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


def broken(_: Scheduler) -> None:
    """An invariant that does not hold."""
    raise AssertionError("pages do not add up")


def until_closed(engine: Engine) -> None:
    """Wait for the engine's thread to end by itself."""
    deadline = time.monotonic() + 10
    while engine.accepting:
        assert time.monotonic() < deadline
        time.sleep(0.005)
