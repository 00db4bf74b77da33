"""The scheduler as a state machine: whatever is submitted and dropped, plans stay legal and work goes on."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.core import Admission, CacheKind, Ended, FinishReason, Plan, Request, Slice
from engine.errors import CapacityError, ContextLengthError
from engine.scheduler.scheduler import Scheduler, SchedulerLimits
from engine.tests.fake_pages import ledger

LIMITS = SchedulerLimits(
    context=120,
    max_sequences=3,
    queue_depth=3,
    prefill_chunk=16,
    prefill_chunk_live=5,
    anchor_every=10,
    max_records=3,
)
STOP = 7


class SchedulerMachine(RuleBasedStateMachine):
    """Plays the loop: executes plans, keeps what ended, checks every plan against a model of the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(LIMITS, ledger())
        self.names = 0
        self.waiting: deque[str] = deque()
        self.tokens: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}
        self.requests: dict[str, Request] = {}

    @rule(length=st.integers(1, 60), first=st.integers(0, 1), budget=st.integers(0, 8), reuse=st.booleans())
    def submit(self, length: int, first: int, budget: int, reuse: bool) -> None:
        self.names += 1
        prompt = tuple((first + index) % 5 for index in range(length))
        request = Request(f"r{self.names}", prompt, budget, stop_ids=frozenset({STOP}), reuse=reuse)
        full = len(self.waiting) >= LIMITS.queue_depth and len(self.tokens) >= LIMITS.max_sequences
        if full:
            with pytest.raises(CapacityError):
                self.scheduler.submit(request)
            return
        self.scheduler.submit(request)
        self.requests[request.id] = request
        self.waiting.append(request.id)

    @rule(data=st.data())
    @precondition(lambda self: self.requests)
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.requests)))
        ended = self.scheduler.drop(name, FinishReason.CANCELLED)

        assert ended is not None
        self.end(ended)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        plan = self.scheduler.plan()
        for admission in plan.admissions:
            self.admit(admission)
        self.check_slices(plan)
        for piece in plan.slices:
            self.compute(piece, data.draw(st.sampled_from([1, 2, STOP])))

    @rule(data=st.data())
    @precondition(lambda self: self.tokens)
    def fail_a_step(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        self.scheduler.restart(name)
        self.computed[name] = 0

    def admit(self, admission: Admission) -> None:
        request = admission.request

        assert self.waiting.popleft() == request.id
        assert 0 <= admission.cached < len(request.prompt)
        assert (admission.kind is CacheKind.COLD) == (admission.cached == 0)
        assert request.reuse or admission.cached == 0
        self.tokens[request.id] = list(request.prompt)
        self.computed[request.id] = admission.cached

    def check_slices(self, plan: Plan) -> None:
        prefills = [piece for piece in plan.slices if piece.stop - piece.start > 1]

        assert bool(plan.slices) == bool(self.tokens)
        assert len({piece.sequence for piece in plan.slices}) == len(plan.slices)
        assert sum(piece.stop - piece.start for piece in prefills) <= LIMITS.prefill_chunk

    def compute(self, piece: Slice, drawn: int) -> None:
        name, request = piece.sequence, self.requests[piece.sequence]
        known = self.tokens[name]

        assert piece.start == self.computed[name] < piece.stop <= len(known)
        assert known[piece.start : piece.stop] == self.scheduler.tokens(piece)
        generated = len(known) - len(request.prompt)
        assert piece.samples == (piece.stop == len(known) and generated < request.max_tokens)
        self.computed[name] = piece.stop
        ended = self.scheduler.commit(piece, (drawn,) if piece.samples else ()).ended
        if piece.samples and drawn != STOP:
            known.append(drawn)
        over = piece.stop >= len(request.prompt) and (
            len(known) - len(request.prompt) >= request.max_tokens or (piece.samples and drawn == STOP)
        )
        assert over == (ended is not None)
        if ended is not None:
            self.end(ended)

    def end(self, ended: Ended) -> None:
        name = ended.request.id
        if name in self.tokens:
            known = self.tokens.pop(name)

            assert tuple(known[: self.computed.pop(name)]) == ended.computed
            if ended.computed and ended.request.reuse:
                anchors = tuple(range(10, len(ended.computed), 10))
                self.scheduler.keep(ended, anchors, 10)
            else:
                self.scheduler.release(name)
        else:
            self.waiting.remove(name)

            assert () == ended.computed
            self.scheduler.release(name)
        del self.requests[name]

    @invariant()
    def the_scheduler_agrees(self) -> None:
        self.scheduler.check()
        assert (len(self.waiting), len(self.tokens)) == (self.scheduler.queued, self.scheduler.running)


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestScheduler = SchedulerMachine.TestCase


def run(scheduler: Scheduler, steps: int) -> list[list[tuple[str, int]]]:
    """Execute plans, always drawing token 1; per step which sequence got how many tokens."""
    done = []
    for _ in range(steps):
        plan = scheduler.plan()
        done.append([(piece.sequence, piece.stop - piece.start) for piece in plan.slices])
        for piece in plan.slices:
            scheduler.commit(piece, (1,) if piece.samples else ())
    return done


def test_long_prompts_share_the_prefill_in_turns() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    for name in ("a", "b"):
        scheduler.submit(Request(name, (1,) * 40, 2, reuse=False))
    order = run(scheduler, 4)

    assert [[("a", 16)], [("b", 16)], [("a", 16)], [("a", 8), ("b", 8)]] == order


def test_a_short_prompt_goes_through_beside_long_ones() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    for name in ("a", "b"):
        scheduler.submit(Request(name, (1,) * 90, 2, reuse=False))
    run(scheduler, 1)
    scheduler.submit(Request("short", (1,) * 5, 1, reuse=False))

    assert [[("short", 5), ("b", 11)]] == run(scheduler, 1)


def test_a_flood_of_short_requests_does_not_starve_a_long_prompt() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    scheduler.submit(Request("long", (1,) * 100, 2, reuse=False))
    served = 0
    for number in range(40):
        if not scheduler.queued:
            scheduler.submit(Request(f"s{number}", (2,) * LIMITS.prefill_chunk, 1, reuse=False))
        served += sum(count for step in run(scheduler, 1) for name, count in step if name == "long")

    assert 102 <= served + 1, "the whole prompt and one more token"


def test_an_answer_never_exceeds_the_context() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    scheduler.submit(Request("a", (1,) * (LIMITS.context - 3), 50, reuse=False))
    run(scheduler, 20)

    assert (0, 0) == (scheduler.running, scheduler.queued)


def test_ids_that_follow_each_other_at_once_stop_at_the_limit_and_at_a_stop_id() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    for name, budget in (("limited", 2), ("stopped", 9)):
        scheduler.submit(Request(name, (1, 1), budget, stop_ids=frozenset({STOP}), reuse=False))
    done = [scheduler.commit(piece, (5, 6, STOP, 8)) for piece in scheduler.plan().slices]

    assert [(5, 6), (5, 6)] == [committed.tokens for committed in done]
    assert [FinishReason.LENGTH, FinishReason.STOP] == [entry.ended and entry.ended.reason for entry in done]


@pytest.mark.parametrize(("company", "end"), [(False, None), (True, FinishReason.LENGTH)])
def test_ids_that_follow_each_other_at_once_are_all_paid_for(company: bool, end: FinishReason | None) -> None:
    """A rule may force more ids than a tranche has, and what others were promised is not there for them."""
    limits = replace(LIMITS, tranche=3)
    scheduler = Scheduler(limits, ledger(pages=4, page_tokens=8, state_bytes=0))
    for name in ("a", "b")[: 1 + company]:
        scheduler.submit(Request(name, (1,) * 8, 60, reuse=False))
    committed = scheduler.commit(scheduler.plan().slices[0], (2,) * 20)
    scheduler.check()

    assert end == (committed.ended and committed.ended.reason)


def test_an_answer_is_promised_no_more_than_it_may_have() -> None:
    """Of a second tranche the answer may take four ids: the page for them is there, the whole tranche not."""
    scheduler = Scheduler(replace(LIMITS, tranche=16), ledger(pages=7, page_tokens=8, state_bytes=0))
    for name, budget in (("a", 20), ("b", 16)):
        scheduler.submit(Request(name, (1,) * 8, budget, reuse=False))
    committed = scheduler.commit(scheduler.plan().slices[0], (2,) * 17)
    scheduler.check()

    assert ((2,) * 17, None) == (committed.tokens, committed.ended)


def test_a_decoding_request_gets_a_token_in_every_step() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    scheduler.submit(Request("a", (1,) * 4, 50, reuse=False))
    run(scheduler, 1)
    scheduler.submit(Request("b", (2,) * 40, 5, reuse=False))
    steps = run(scheduler, 8)

    assert all(("a", 1) in step for step in steps)
    assert [("b", 5)] * 8 == [piece for step in steps for piece in step if piece[0] == "b"]


def test_a_waiting_request_starts_as_soon_as_another_ends() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    for name in ("a", "b", "c", "d"):
        scheduler.submit(Request(name, (1, 2), 1 if name == "b" else 9, reuse=False))
    run(scheduler, 4)

    assert (3, 0) == (scheduler.running, scheduler.queued)


def test_a_prompt_as_long_as_the_context_is_refused() -> None:
    with pytest.raises(ContextLengthError):
        Scheduler(LIMITS, ledger()).submit(Request("a", (1,) * LIMITS.context, 1))


def test_who_follows_waits_for_the_prompt_and_starts_from_it() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    scheduler.submit(Request("a", (1,) * 40, 5))
    scheduler.submit(Request("b", (1,) * 40, 5, follows="a"))
    scheduler.submit(Request("c", (2,) * 4, 9, reuse=False))
    steps = run(scheduler, 12)

    assert {("a", 10), ("c", 4)} == set(steps[0]), "whoever does not follow overtakes"
    assert ("b", 1) in next(step for step in steps if any(name == "b" for name, _ in step))


def test_who_follows_goes_on_alone_when_nobody_leads_any_more() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    scheduler.submit(Request("a", (1,) * 40, 5))
    scheduler.submit(Request("b", (1,) * 40, 5, follows="a"))
    run(scheduler, 1)
    scheduler.drop("a", FinishReason.CANCELLED)
    scheduler.release("a")

    assert [[("b", 10)]] == run(scheduler, 1)


def test_who_follows_waits_with_one_that_waits_for_a_file() -> None:
    scheduler = Scheduler(LIMITS, ledger())
    scheduler.submit(Request("a", (1,) * 9, 5))
    scheduler.submit(Request("b", (1,) * 9, 5, follows="a"))
    scheduler.hold("a")
    held = run(scheduler, 1)
    scheduler.proceed("a")

    assert [[], [("a", 8)]] == [*held, *run(scheduler, 1)]
