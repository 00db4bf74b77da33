"""Sequences that yield when memory is short, and what is stored of them on disk."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cache.pages import PageTable
from engine.cache.shelf import Shelf
from engine.core import (
    CacheKind,
    FinishReason,
    Started,
)
from engine.scheduler.scheduler import SchedulerLimits
from engine.states import State
from engine.tests.engines import (
    VOCAB,
    complete,
    prompt,
    request,
    running,
    submit,
)
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeRunner


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

    assert second.started == Started(604, CacheKind.DISK)
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


def test_bytes_of_a_state_can_be_counted_while_it_is_frozen_anew() -> None:
    runner = FakeRunner(VOCAB)
    table = PageTable(runner.ledger)
    table.grow(5)
    cache = runner.new_cache(table)
    state = State(cache)
    state.freeze()
    counting = iter(state.anchors.values())
    runner.step([(cache, prompt(5))])
    state.freeze()

    assert 0 == next(counting).length
    assert [0, 5] == list(state.anchors)
    assert 30 == state.own_bytes
