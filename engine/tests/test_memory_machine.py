"""Memory as a whole under any interleaving: loop, scheduler, ledger, records, tiers, budget and files.

Only the model is fake: its pages hold token ids, so a page that is shared wrongly, lost or borrowed gives
another answer than a fresh run.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.cache.shelf import LEAST_TOKENS, Shelf
from engine.core import Event, Finished, FinishReason, Generated, Request, SamplingParams
from engine.loop import Engine
from engine.scheduler.records import Record, Records
from engine.scheduler.scheduler import SchedulerLimits
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeRunner
from engine.tests.later import Later
from engine.tests.simulation.model import Inline

VOCAB = 30
LIMITS = SchedulerLimits(
    context=700,
    max_sequences=3,
    queue_depth=4,
    prefill_chunk=90,
    prefill_chunk_live=40,
    anchor_every=100,
    max_records=5,
    tranche=12,
    pin_from=500,
)
PAGES = (130, 90, 240)  # of 8 tokens; of the first, three of the longest prompts do not fit
MET = (
    *("admits_cold", "admits_warm", "admits_fork", "admits_disk", "evictions_warm", "evictions_pinned"),
    *("spills_stored", "spills_failed", "recalls_used", "recalls_unusable"),
    *("rejected_live_headroom", "requests_canceled", "requests_completed"),
)
SEEN: Counter[str] = Counter()
HEADS = 3  # prompts of one family begin alike


def prompt(family: int, length: int, branch: int) -> tuple[int, ...]:
    """Prompts of one family are the same up to the last twenty tokens, which depend on the branch."""
    head = [(family * 11 + index * (3 + family)) % 19 for index in range(length)]
    return (*head[:-20], *((token + branch) % 19 for token in head[-20:]))


@dataclass(slots=True)
class Asked:
    """One request and what it was told."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    end: FinishReason | None = None

    def hear(self, event: Event) -> None:
        if isinstance(event, Generated):
            self.tokens.append(event.token)
        elif isinstance(event, Finished):
            self.end = event.reason


@contextmanager
def full_disk() -> Iterator[None]:
    with mock.patch("engine.cache.shelf.os.fsync", side_effect=OSError(28, "No space left on device")):
        yield


class MemoryMachine(RuleBasedStateMachine):
    """Plays clients, the operating system and the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.open: dict[str, Asked] = {}
        self.answers: dict[tuple[int, ...], list[int]] = {}
        self.names = 0
        self.steps = 0
        self.start(PAGES[0])

    def start(self, pages: int) -> None:
        """A new process, maybe with another budget."""
        self.runner = FakeRunner(VOCAB, ledger=ledger(pages=pages))
        self.disk = Later()
        self.shelf = Shelf(Path(self.folder.name), fingerprint="fake", budget=40_000, worker=self.disk)
        self.engine = Engine(self.runner, LIMITS, aside=Inline(), threaded=False, shelf=self.shelf)

    def right(self, tokens: tuple[int, ...], count: int) -> list[int]:
        """The answer of a fresh run."""
        known = self.answers.setdefault(tokens, [])
        while len(known) < count:
            known.append(int(np.argmax(self.runner.logits((*tokens, *known)))))
        return known[:count]

    @rule(
        family=st.integers(0, HEADS - 1),
        length=st.sampled_from([30, 63, 64, 65, 100, 300, 301, 520]),
        branch=st.integers(0, 2),
        budget=st.sampled_from([0, 1, 7, 30, 120]),
        tenant=st.sampled_from(["", "", "other"]),
        pin=st.sampled_from([None, None, True, False]),
        turns=st.sampled_from([0, 3, 12, 200]),
    )
    def ask(self, *, turns: int, tenant: str, pin: bool | None, **wanted: int) -> None:
        tokens = prompt(wanted["family"], wanted["length"], wanted["branch"])
        self.submit(tokens, wanted["budget"], tenant=tenant, pin=pin)
        self.go_on(turns)

    @rule(
        family=st.integers(0, HEADS - 1),
        length=st.sampled_from([65, 300, 520]),
        tail=st.integers(1, 9),
        turns=st.sampled_from([0, 12, 200]),
    )
    def ask_on(self, family: int, length: int, tail: int, turns: int) -> None:
        """The next turn of a conversation: prompt, its whole answer, and more."""
        first = prompt(family, length, 0)
        self.submit((*first, *self.right(first, 7), *range(tail)), 5)
        self.go_on(turns)

    def submit(
        self, tokens: tuple[int, ...], budget: int, *, tenant: str = "", pin: bool | None = None
    ) -> None:
        if len(self.open) < LIMITS.max_sequences + LIMITS.queue_depth:
            self.names += 1
            greedy = SamplingParams(temperature=0.0)
            asked = Asked(Request(f"r{self.names}", tokens, budget, greedy, tenant=tenant, pin=pin))
            self.open[asked.request.id] = asked
            self.engine.submit(asked.request, asked.hear)

    @rule(count=st.integers(1, 12))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            if self.engine.turn():
                return

    @rule(count=st.integers(1, 3), full=st.booleans())
    @precondition(lambda self: self.disk.waiting)
    def the_disk_works(self, count: int, full: bool) -> None:
        """Files are written and read at any time, or never."""
        with full_disk() if full else nullcontext():
            self.disk.work(count)

    @rule()
    def finish_all(self) -> None:
        for _ in range(2000):
            if all(asked.end for asked in self.open.values()):
                return
            if self.engine.turn():
                self.disk.work(1)
        pytest.fail(f"{len(self.open)} requests never end")

    @rule(data=st.data())
    @precondition(lambda self: self.open)
    def cancel(self, data: st.DataObject) -> None:
        self.engine.cancel(data.draw(st.sampled_from(sorted(self.open))))

    @rule(torn=st.booleans(), pages=st.sampled_from(PAGES))
    def crash(self, torn: bool, pages: int) -> None:
        """Everything in memory is gone; a file that was being written may have been left."""
        self.note()
        self.open.clear()
        if torn:
            (Path(self.folder.name) / "spkg-x.part").write_bytes(b"half")
        self.start(pages)

    @rule(pages=st.sampled_from(PAGES))
    def restart(self, pages: int) -> None:
        self.engine.close()
        self.note()
        for asked in self.open.values():
            assert asked.end is not None, f"{asked.request.id} is left waiting"
        self.check_ended()
        self.start(pages)

    @rule(which=st.integers(0, 99), where=st.floats(0, 1, exclude_max=True), cut=st.booleans())
    def damage_a_file(self, which: int, where: float, cut: bool) -> None:
        paths = sorted(Path(self.folder.name).glob("*.kv"))
        if paths:  # an empty one was cut before
            path = paths[which % len(paths)]
            found = bytearray(path.read_bytes() or b"!")
            at = int(where * len(found))
            found[at] ^= 0x20
            path.write_bytes(found[:at] if cut else found)

    @invariant()
    def counts_are_right(self) -> None:
        self.steps += 1
        scheduler = self.engine._scheduler
        scheduler.check()
        kept = {record.id: record for record in scheduler.memory.records.values()}
        assert set(kept) == set(self.engine._pool.kept)
        assert scheduler.memory.used <= scheduler.memory.total
        for number, record in kept.items():
            held = self.runner._pages.read(record.table.pages, len(record.tokens))
            assert record.tokens.tolist() == held, number
        self.check_ended()

    def check_ended(self) -> None:
        for name, asked in list(self.open.items()):
            assert asked.tokens == self.right(asked.request.prompt, len(asked.tokens)), name
            if asked.end is not None:
                assert asked.end is not FinishReason.FAILED, name
                del self.open[name]

    def note(self) -> None:
        """Count what this process met."""
        counters = self.engine.stats().counters
        SEEN.update({name: counters[name] for name in MET})
        SEEN["steps"] += self.steps
        self.steps = 0

    def teardown(self) -> None:
        self.note()
        self.shelf.close()
        self.folder.cleanup()


@pytest.fixture(autouse=True)
def _quiet_and_watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unusable files are part of the game; a pinned record never yields while another could."""
    original = Records.yields

    def watched(self: Records, nbytes: int, *, spared: int | None = None) -> Record | None:
        others = [record for record in self.values() if not record.pinned and record.id != spared]
        gone = original(self, nbytes, spared=spared)
        assert gone is None or not gone.pinned or not others, "a pinned record went before another"
        return gone

    monkeypatch.setattr(Records, "yields", watched)
    loggers = [logging.getLogger(name) for name in ("engine.cache", "engine.loop")]
    for logger in loggers:
        logger.disabled = True
    SEEN.clear()
    yield
    for logger in loggers:
        logger.disabled = False
    print({name: SEEN[name] for name in ("steps", *MET)})
    if SEEN["steps"] > 20_000:
        assert not {name for name in MET if not SEEN[name]}, "what never happened was not tested"


class LongMachine(MemoryMachine):
    """The same for at least 20,000 steps."""


MemoryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
LongMachine.TestCase.settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
TestMemory = MemoryMachine.TestCase
TestMemoryForLong = pytest.mark.nightly(pytest.mark.timeout(3600)(LongMachine.TestCase))

assert LEAST_TOKENS < 300  # or nothing would ever be stored
