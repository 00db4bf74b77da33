"""Rules and probabilities: what the loop keeps for one request besides its state."""

from __future__ import annotations

import queue
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from engine.core import (
    Allowance,
    Event,
    FinishReason,
    Generated,
    Request,
    SamplingParams,
)
from engine.errors import RuleError
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
from engine.tests.fake_runner import FakeRunner
from engine.tickets import RULE_SECONDS


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


class Busy(Executor):
    """Works on the first rule for ever; whoever waits for a rule only moves this clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[Endless] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ARG002
        self.asked.append(Endless(self))
        if len(self.asked) == 1:
            self.asked[0].set_running_or_notify_cancel()
        return self.asked[-1]


class Endless(Future[Any]):
    def __init__(self, busy: Busy) -> None:
        super().__init__()
        self._busy = busy

    def result(self, timeout: float | None = None) -> Any:
        assert timeout is not None
        self._busy.now += timeout
        raise TimeoutError


def test_slow_rules_of_one_step_keep_everybody_waiting_only_once() -> None:
    busy = Busy()
    runner = FakeRunner(VOCAB)
    engine = Engine(runner, LIMITS, clock=lambda: busy.now, aside=busy, threaded=False)
    rule = Script([Allowance()])
    slow = [submit(engine, request(f"s{n}", prompt(3, n), 4, rule=rule)) for n in range(2)]
    free = submit(engine, request("f", prompt(3, 5), 4))
    while not engine.turn():
        pass
    ends = [answer.wait() for answer in (*slow, free)]
    engine.close()

    assert [3] == sorted({len(step) for step in runner.steps})[-1:], "they share a step"
    assert RULE_SECONDS == busy.now
    assert [FinishReason.FAILED, FinishReason.FAILED, FinishReason.LENGTH] == [end.reason for end in ends]
    assert "too slow to follow" in str(ends[0].message)
    assert "left this one no time; ask again" in str(ends[1].message)
    assert [False, True] == [asked.cancelled() for asked in busy.asked]


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
