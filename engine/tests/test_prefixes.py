"""What the loop keeps of finished and running sequences, and which prompts start from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core import (
    CacheKind,
    Started,
)
from engine.scheduler.scheduler import SchedulerLimits
from engine.tests.engines import (
    VOCAB,
    complete,
    prompt,
    request,
    running,
    slow_runner,
    submit,
)
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeRunner


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
