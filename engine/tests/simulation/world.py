"""Runs a scenario through the real loop and scheduler, one turn at a time, and checks after every turn.

Nothing in it waits: runner, clock, callers and rules are all inside the turn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.core import Event, FinishReason, Started
from engine.errors import CapacityError, NotReadyError
from engine.loop import Engine
from engine.tests.fake_pages import ledger
from engine.tests.simulation.guest import Guest, request_of
from engine.tests.simulation.model import Inline, Runner, digest
from engine.tests.simulation.scenario import Scenario

MOST_TURNS = 10_000


@dataclass(slots=True)
class World:
    """One run.  AssertionError says what went wrong."""

    scenario: Scenario
    runner: Runner = field(init=False)
    engine: Engine = field(init=False)
    guests: dict[str, Guest] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)
    turn: int = 0
    closed: bool = False
    lone_faults: int = 0
    ready: set[str] = field(default_factory=set)  # those who waited for nobody when the last turn ended
    unmade: set[str] = field(default_factory=set)  # those who failed in this turn before they started
    _moved: dict[str, tuple[int, int]] = field(default_factory=dict)  # tokens in the cache, and since when
    _checked: set[int] = field(default_factory=set)  # kept records that hold what they should

    def __post_init__(self) -> None:
        self.runner = Runner(self.scenario.faults, ledger(pages=self.scenario.pages))
        self.engine = Engine(
            self.runner, self.scenario.limits, clock=self.runner.clock, aside=Inline(), threaded=False
        )

    def run(self) -> None:
        """Play it to the end."""
        last = max((visitor.at for visitor in self.scenario.visitors), default=0)
        while self.turn <= last or self.open or not self.engine.turn():
            assert self.turn < MOST_TURNS, f"{self.open} requests never end"
            self._play()
        self._check_end()

    @property
    def open(self) -> int:
        """Requests let in that did not end."""
        return sum(guest.finished is None for guest in self.guests.values())

    def _play(self) -> None:
        if self.turn == self.scenario.closes_at:
            self.engine.close()
            self.closed = True
        for turn, pages in self.scenario.budgets:
            if turn == self.turn:
                memory = self.engine._scheduler.memory
                memory.total = min(pages, memory.ledger.pages) * memory.ledger.page_bytes
        for number, visitor in enumerate(self.scenario.visitors):
            if visitor.at == self.turn:
                self._enter(f"v{number}", number)
        for guest in self.guests.values():
            if guest.visitor.leaves_after == -1 and guest.visitor.leaving == "cancels":
                self._leave(guest)
        over = [guest for guest in self.guests.values() if guest.finished is not None]
        leavers = [guest for guest in self.guests.values() if guest.left_at is not None]
        live = any(g.answer.tokens for g in self.guests.values() if g not in over and g not in leavers)
        calls = self.runner.calls
        self.unmade.clear()
        self.engine.turn()
        late = [guest for guest in self.guests.values() if guest not in over]
        self._check_slots(sum(guest.started or guest.finished is FinishReason.FAILED for guest in late))
        if self.runner.calls > calls:
            self._check_step(live=live)
        for guest in leavers:
            assert guest.finished is not None, f"{guest.request.id} works on though its caller left"
        self._check()
        self._read()
        self.turn += 1

    def _check_slots(self, served: int) -> None:
        """A slot is free only while everybody waits for a prompt that is being computed."""
        ready = {name for name in self.waiting if not self._held(name)}
        if served < self.scenario.limits.max_sequences:
            late = {name for name in ready if name in self.ready or not self.guests[name].request.follows}
            assert not late, f"a free slot, and {late} wait"
        self.ready = ready

    def _held(self, name: str) -> bool:
        """It waits for the prompt of another, which may wait itself."""
        request = self.guests[name].request
        leader = self.engine._scheduler._running.get(request.follows or "")
        if leader is None:
            return request.follows in self.waiting
        return leader.computed < len(request.prompt) - 1

    def _enter(self, name: str, number: int) -> None:
        visitor, limits = self.scenario.visitors[number], self.scenario.limits
        leader = (
            self.scenario.visitors[number - visitor.follows] if 0 < visitor.follows <= number else visitor
        )
        same = leader is not visitor and leader.prompt == visitor.prompt and leader.reuse
        request = request_of(visitor, name, follows=f"v{number - visitor.follows}" if same else None)
        promised = limits.tranche if self.scenario.tight else limits.context
        guest = Guest(visitor, request, limits.context - len(request.prompt), promised)
        full = self.open >= limits.max_sequences + limits.queue_depth
        self.guests[name] = guest
        self.waiting.append(name)
        try:
            self.engine.submit(request, lambda event: self._tell(guest, event))
        except CapacityError as error:
            refused = self.closed if isinstance(error, NotReadyError) else full
            assert refused, f"{name} was refused for nothing"
            del self.guests[name]
            self.waiting.pop()
            return
        assert not full, f"{name} was let in beyond the limit"
        assert not self.closed
        if visitor.leaving == "cancels" and visitor.leaves_after == 0:
            self._leave(guest)

    def _leave(self, guest: Guest) -> None:
        if guest.left_at is None and guest.finished is None:
            guest.left_at = self.turn
            self.engine.cancel(guest.request.id)
            self.engine.cancel("nobody")

    def _tell(self, guest: Guest, event: Event) -> None:
        was_started = guest.started
        guest.hear(event)
        name = guest.request.id
        if isinstance(event, Started) and not was_started:
            self._start(guest, event)
        if guest.finished is not None and not guest.started:
            self.waiting.remove(name)
            self.unmade |= {name} if guest.finished is FinishReason.FAILED else set()
        habits = guest.visitor
        if habits.leaving == "cancels" and 0 < habits.leaves_after <= guest.heard:
            self._leave(guest)
        if habits.leaving == "vanishes" and habits.leaves_after <= guest.heard:
            guest.left_at = self.turn if guest.left_at is None else guest.left_at
            raise RuntimeError("nobody listens")

    def _start(self, guest: Guest, event: Started) -> None:
        """It overtakes only those who wait for a prompt, and starts where the one that it follows is."""
        name, end = guest.request.id, len(guest.request.prompt) - 1
        before = list(self.waiting)[: self.waiting.index(name)]
        ready = [other for other in before if not self._held(other)]
        late = self.unmade >= {self.guests[other].request.follows for other in ready}
        assert late, f"{name} overtakes {ready}"
        assert not self._held(name), f"{name} does not wait for the prompt"
        leader = self.engine._scheduler._running.get(guest.request.follows or "")
        if leader is not None and end in leader.anchors:  # one that went on exactly there has none
            assert event.cached_tokens == end, f"{name} computes what it shares"
        self.waiting.remove(name)

    def _read(self) -> None:
        """Callers read what they were told, each at its own pace; one whose backlog is full is cut off."""
        for guest in self.guests.values():
            if guest.visitor.pace == 0:
                guest.unread = 0
            elif self.turn % guest.visitor.pace == 0:
                guest.unread = max(0, guest.unread - 1)
            if guest.unread > guest.visitor.backlog:
                self._leave(guest)

    def _check_step(self, *, live: bool) -> None:
        limits, lengths = self.scenario.limits, self.runner.last
        chunk = limits.prefill_chunk_live if live else limits.prefill_chunk
        assert sum(length for length in lengths if length > 1) <= chunk, (lengths, chunk)
        assert len(lengths) <= limits.max_sequences
        if len(lengths) == 1 and self.runner.calls in self.scenario.faults:
            self.lone_faults += 1

    def _check(self) -> None:
        scheduler = self.engine._scheduler
        scheduler.check()
        stats = self.engine.stats()
        running = sum(guest.started and guest.finished is None for guest in self.guests.values())
        assert (running, len(self.waiting)) == (stats.running, stats.queued)
        assert (running, len(self.waiting)) == (scheduler.running, scheduler.queued)
        for name, sequence in scheduler._running.items():
            self._check_service(name, sequence.computed)
            state = self.engine._pool.running[name].cache
            assert state.length == sequence.computed, name
        self._check_kept()

    def _check_service(self, name: str, computed: int) -> None:
        """A running request is served at least once in so many turns, whoever else is there."""
        before, since = self._moved.get(name, (-1, self.turn))
        rests = self.engine._scheduler.memory.rests(name)  # for room that it shared before a step broke
        if computed != before or rests:
            self._moved[name] = (computed, self.turn)
            return
        patience = 2 * self.scenario.limits.max_sequences + len(self.scenario.faults) + self._poison()
        assert self.turn - since <= patience, f"{name} was not served for {self.turn - since} turns"

    def _poison(self) -> int:
        return sum(visitor.fault == "poison" for visitor in self.scenario.visitors)

    def _check_kept(self) -> None:
        """What is kept for later requests is what its record says."""
        kept, records = self.engine._pool.kept, self.engine._scheduler.memory.records._records
        assert set(kept) == set(records)
        for number in kept.keys() - self._checked:
            record, state = records[number], kept[number]
            tokens = record.tokens.tolist()
            held = self.runner.pages.read(record.table.pages, len(tokens))
            assert held == tokens, (number, held, tokens)
            assert digest(tokens) == state.cache.state  # type: ignore[attr-defined]
            for anchor in record.anchors:
                assert digest(tokens[:anchor]) == state.anchors[anchor].state
            self._checked.add(number)

    def _check_end(self) -> None:
        stats = self.engine.stats()
        assert (0, 0) == (stats.running, stats.queued)
        assert not self.engine._pool.running
        assert not self.engine._stepper.tickets
        assert self.engine.stalled_s == 0.0
        ledger, states = self.runner.ledger, self.engine._pool.kept.values()
        assert stats.memory.used == ledger.used * ledger.page_bytes + sum(kept.own_bytes for kept in states)
        assert stats.memory.used <= ledger.pages * ledger.page_bytes
        assert stats.memory.used <= stats.memory.total or self.scenario.budgets
        ends = [guest.finished for guest in self.guests.values()]
        counters = stats.counters
        let_in = counters["requests_started"] - counters["requests_rejected"]
        assert let_in == len(ends) - ends.count(FinishReason.REFUSED)
        assert counters["requests_canceled"] == ends.count(FinishReason.CANCELLED)
        assert counters["requests_failed"] == ends.count(FinishReason.FAILED)
        assert counters["tokens_decoded"] == sum(len(guest.answer.tokens) for guest in self.guests.values())
        for guest in self.guests.values():
            self._check_reason(guest)
        blameless = [g for g in self.guests.values() if g.visitor.fault == "none"]
        unlucky = sum(guest.finished is FinishReason.FAILED for guest in blameless)
        faults = self.lone_faults + self.runner.unmade
        assert unlucky <= faults, f"{unlucky} requests fail for the faults of others"

    def _check_reason(self, guest: Guest) -> None:
        name, fault = guest.request.id, guest.visitor.fault
        if guest.finished is FinishReason.REFUSED:
            assert self.scenario.tight, f"{name} was refused for nothing"
            assert not guest.started
        elif guest.finished is FinishReason.CANCELLED:
            assert guest.left_at is not None or self.closed, f"{name} was cancelled by nobody"
        elif fault == "poison" or (fault == "nan" and guest.budget):
            assert guest.finished is FinishReason.FAILED, f"{name} survives what must break it"


def play(scenario: Scenario) -> str | None:
    """Run a scenario; what went wrong, or None."""
    try:
        World(scenario).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
