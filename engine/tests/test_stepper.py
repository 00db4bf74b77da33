"""Steps: a failure ends only its request, a state serves as planned, callers are told together."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest

from engine.cache.pages import PageTable
from engine.core import (
    CacheKind,
    Event,
    Finished,
    FinishReason,
    Generated,
    Logits,
    Started,
)
from engine.loop import Engine
from engine.tests.engines import (
    LIMITS,
    VOCAB,
    complete,
    prompt,
    request,
    running,
    submit,
)
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeCache, FakeRunner, FakeSnapshot


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
    while not any(state.anchors for state in engine._pool.running.values()):
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
    engine._stepper.execute(plan)
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
