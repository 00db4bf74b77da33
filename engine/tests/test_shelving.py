"""Kept states on disk behind the loop: stored and brought back beside everything else."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.cache import shelf as shelf_module
from engine.cache import stored
from engine.cache.pages import PageTable
from engine.cache.shelf import Shelf
from engine.core import CacheKind, Event, Finished, FinishReason, Generated, Request, SamplingParams, Started
from engine.loop import Engine
from engine.scheduler.scheduler import SchedulerLimits
from engine.tests.fake_pages import ledger
from engine.tests.fake_runner import FakeCache, FakeRunner
from engine.tests.later import Later
from engine.tests.simulation.model import Inline

VOCAB = 30
LIMITS = SchedulerLimits(context=2000, prefill_chunk=100, prefill_chunk_live=50)
GREEDY = SamplingParams(temperature=0.0)


@dataclass(slots=True)
class Asked:
    """One request and what it was told."""

    request: Request
    started: Started | None = None
    tokens: list[int] = field(default_factory=list)
    end: FinishReason | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def hear(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started = event
        elif isinstance(event, Generated):
            self.tokens.append(event.token)
        elif isinstance(event, Finished):
            self.end = event.reason
            self.over.set()


def prompt(length: int, first: int = 1) -> tuple[int, ...]:
    return tuple((first + 7 * index) % VOCAB for index in range(length))


class Stage:
    """An engine that goes on one turn at a time, over a disk that works when it is told to."""

    def __init__(
        self,
        directory: Path,
        *,
        pages: int = 4096,
        disk: Executor | None = None,
        runner: FakeRunner | None = None,
    ) -> None:
        self.runner = runner or FakeRunner(VOCAB, ledger=ledger(pages=pages))
        self.disk = disk or Later()
        self.shelf = Shelf(directory, fingerprint="fake", budget=10**6, worker=self.disk)
        self.engine = Engine(self.runner, LIMITS, aside=Inline(), threaded=False, shelf=self.shelf)
        self.names = 0

    def ask(self, tokens: tuple[int, ...], count: int = 5, **options: Any) -> Asked:
        self.names += 1
        asked = Asked(Request(f"r{self.names}", tokens, count, GREEDY, **options))
        self.engine.submit(asked.request, asked.hear)
        return asked

    def go_on(self) -> None:
        """Turns until there is nothing to do."""
        while not self.engine.turn():
            pass

    def complete(self, tokens: tuple[int, ...], count: int = 5, **options: Any) -> Asked:
        """Ask and let everything work until the answer is there."""
        asked = self.ask(tokens, count, **options)
        while asked.end is None:
            self.go_on()
            if isinstance(self.disk, Later):
                self.disk.work()
        self.check(asked)
        return asked

    def check(self, asked: Asked) -> None:
        assert asked.end is FinishReason.LENGTH
        assert asked.tokens == self.runner.continuation(asked.request.prompt, asked.request.max_tokens)

    def count(self, name: str) -> int:
        return self.engine.stats().counters[name]


def stage_with_a_file(directory: Path, **options: Any) -> tuple[Stage, tuple[int, ...]]:
    """A new process that finds a conversation, and the prompt that continues it."""
    first = Stage(directory)
    asked = first.complete(prompt(600))
    first.engine.close()
    return Stage(directory, **options), (*prompt(600), *asked.tokens, 1, 2, 3)


def test_others_go_on_while_a_file_is_read(tmp_path: Path) -> None:
    stage, longer = stage_with_a_file(tmp_path)
    live = stage.ask(prompt(50, 3), 40)
    stage.engine.turn()
    recalled = stage.ask(longer)
    late = stage.ask(prompt(70, 4))
    stage.go_on()
    waits = recalled.started is None
    stage.check(live)
    stage.check(late)
    stage.disk.work()  # type: ignore[attr-defined]
    stage.go_on()

    assert waits
    stage.check(recalled)
    assert recalled.started == Started(604, CacheKind.DISK)
    assert (1, 1) == (stage.count("admits_disk"), stage.count("recalls_used"))


def test_others_go_on_while_a_file_is_written(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first = stage.ask(prompt(600))
    stage.go_on()
    second = stage.ask((*prompt(600), *first.tokens, 9))
    stage.go_on()

    assert [] == list(tmp_path.iterdir())
    stage.check(second)
    assert second.started == Started(604, CacheKind.WARM)
    stage.engine.close()
    assert 1 == len(list(tmp_path.glob("*.kv")))


def test_what_is_still_being_written_is_found(tmp_path: Path) -> None:
    stage = Stage(tmp_path, pages=90)
    stage.ask(prompt(600))
    stage.go_on()
    stage.ask(prompt(600, 2))
    stage.go_on()
    again = stage.ask((*prompt(600), 9))
    stage.go_on()
    written = list(tmp_path.glob("*.kv"))
    stage.disk.work()  # type: ignore[attr-defined]
    stage.go_on()

    assert [] == written
    stage.check(again)
    assert again.started is not None
    assert CacheKind.DISK is again.started.kind


def test_branches_of_a_stored_conversation_read_it_once(tmp_path: Path) -> None:
    stage, longer = stage_with_a_file(tmp_path)
    branches = [stage.ask((*longer, number)) for number in range(3)]
    while any(asked.end is None for asked in branches):
        stage.go_on()
        stage.disk.work()  # type: ignore[attr-defined]

    for asked in branches:
        stage.check(asked)
        assert asked.started is not None
        assert asked.started.cached_tokens >= 599
    assert 1 == stage.count("recalls_used")


@pytest.mark.parametrize("pin", [True, False, None])
def test_a_wish_to_pin_outlives_the_process(pin: bool | None, tmp_path: Path) -> None:
    first = Stage(tmp_path)
    asked = first.complete(prompt(600), pin=pin)
    first.engine.close()
    stage = Stage(tmp_path)
    stage.complete((*prompt(600), *asked.tokens, 1))

    assert int(pin is True) == stage.engine.stats().memory.pinned_records


def test_a_client_that_leaves_while_its_file_is_read_leaves_nothing(tmp_path: Path) -> None:
    stage, longer = stage_with_a_file(tmp_path)
    gone = stage.ask(longer)
    stage.go_on()
    stage.engine.cancel(gone.request.id)
    stage.go_on()
    stage.disk.work()  # type: ignore[attr-defined]
    stage.go_on()
    stage.engine._scheduler.check()

    assert FinishReason.CANCELLED is gone.end
    assert 0 == stage.engine.stats().memory.used
    assert CacheKind.DISK is stage.complete(longer).started.kind  # type: ignore[union-attr]


def test_closing_while_a_file_is_read_leaves_nobody_waiting(tmp_path: Path) -> None:
    stage, longer = stage_with_a_file(tmp_path)
    asked = stage.ask(longer)
    stage.go_on()
    stage.engine.close()

    assert FinishReason.CANCELLED is asked.end


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_file_that_cannot_be_used_is_one_line_and_a_computation(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage, longer = stage_with_a_file(tmp_path)
    (path,) = tmp_path.glob("*.kv")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data[:-1] if damage == "cut" else data)
    if damage == "gone":
        path.unlink()
    caplog.clear()
    asked = stage.complete(longer)

    assert asked.started == Started(0, CacheKind.COLD)
    assert 1 == len([record for record in caplog.records if record.levelno >= logging.WARNING])
    assert 1 == stage.count("recalls_unusable")


def test_a_file_that_does_not_fit_is_deleted_and_costs_a_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, longer = stage_with_a_file(tmp_path)
    monkeypatch.setattr(shelf_module, "read_arrays", lambda *_: {})
    asked = stage.complete(longer)
    stage.disk.work()  # type: ignore[attr-defined]
    stage.engine._scheduler.check()

    assert asked.started == Started(0, CacheKind.COLD)
    assert "does not fit" in caplog.text
    assert [] == list(tmp_path.glob("*.kv"))


class Tight(FakeRunner):
    """A runner whose states can be computed, but neither copied out nor filled."""

    def new_cache(self, table: PageTable) -> TightCache:
        return TightCache(self._pages, table)


class TightCache(FakeCache):
    def arrays(self, _: Any) -> Any:
        raise MemoryError("can't allocate memory")

    def fill(self, *_: Any) -> Any:
        raise MemoryError("can't allocate memory")


def test_a_state_that_no_memory_can_take_costs_a_computation_and_keeps_its_file(tmp_path: Path) -> None:
    _, longer = stage_with_a_file(tmp_path)
    stage = Stage(tmp_path, runner=Tight(VOCAB, ledger=ledger(pages=4096)))
    asked = stage.complete(longer)
    again = stage.complete((*longer, *asked.tokens, 1))
    stage.engine._scheduler.check()

    assert asked.started == Started(0, CacheKind.COLD)
    assert again.started is not None
    assert CacheKind.WARM is again.started.kind
    assert 1 == stage.count("recalls_no_room")
    assert 1 == len(list(tmp_path.glob("*.kv")))


def test_a_file_that_breaks_what_reads_it_is_deleted_and_costs_a_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("index 7 is out of bounds")

    stage, longer = stage_with_a_file(tmp_path)
    monkeypatch.setattr(FakeCache, "fill", broken)
    asked = stage.complete(longer)
    stage.disk.work()  # type: ignore[attr-defined]
    stage.engine._scheduler.check()

    assert asked.started == Started(0, CacheKind.COLD)
    assert (1, 0) == (stage.count("recalls_unusable"), stage.count("recalls_no_room"))
    assert [] == list(tmp_path.glob("*.kv"))


def test_a_state_that_cannot_be_copied_out_is_not_stored_and_ends_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, runner=Tight(VOCAB, ledger=ledger(pages=4096)))
    stage.complete(prompt(600))
    stage.complete(prompt(600, 2))

    assert 2 == stage.count("spills_skipped")
    assert "event=prefix_not_stored tokens=604" in caplog.text
    assert "can't allocate memory" in caplog.text


def test_a_file_for_which_nothing_may_yield_costs_a_computation(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    turn = first.complete(prompt(300))
    first.complete((*prompt(300), *turn.tokens, *prompt(900, 2)))
    first.engine.close()
    stage = Stage(tmp_path, pages=130)
    live = stage.ask(prompt(300, 3), 50)
    stage.engine.turn()
    asked = stage.complete((*prompt(300), *prompt(100, 2), 9))
    stage.go_on()
    stage.check(live)
    stage.engine._scheduler.check()

    assert asked.started is not None
    assert CacheKind.COLD is asked.started.kind
    assert 1 == stage.count("recalls_no_room")


def test_a_deep_conversation_is_stored_though_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf_module, "WAITING_BYTES", 3000)
    stage = Stage(tmp_path)
    for length in (300, 1500, 301):
        stage.ask(prompt(length, length))
        stage.go_on()

    assert 1 == stage.count("spills_skipped")
    stage.engine.close()
    assert 3 == stage.count("spills_stored"), "a server that ends stores what it had no time for"


def test_what_finds_no_room_in_the_queue_is_not_copied_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shelf_module, "WAITING_BYTES", 1000)
    stage = Stage(tmp_path)
    for first in (1, 2):
        stage.ask(prompt(600, first))
        stage.go_on()
    waiting = stage.shelf.stats().waiting
    stage.disk.work()  # type: ignore[attr-defined]

    assert 2424 == waiting, "only one waits"
    assert (1, 1) == (stage.count("spills_skipped"), stage.count("spills_stored"))
    assert "wait already" in caplog.text


class Watch:
    """What the engine's thread does with files and digests."""

    def __init__(self) -> None:
        self.watching = False
        self.calls: list[str] = []

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        files = event == "open" or event.startswith(("os.", "fcntl.", "shutil.", "tempfile."))
        if self.watching and files and threading.current_thread().name == "engine":
            self.calls.append(f"{event} {arguments}")

    def memory(self, array: Any) -> memoryview:
        """In place of what looks at the bytes of an array, to hash and to write them."""
        if threading.current_thread().name == "engine":
            self.calls.append(f"{array.nbytes} bytes to hash")
        return MEMORY(array)

    @contextmanager
    def on(self) -> Iterator[None]:
        self.watching = True
        try:
            yield
        finally:
            self.watching = False


MEMORY = stored._memory
WATCH = Watch()
sys.addaudithook(WATCH.audit)  # cannot be removed, but does nothing while it is off


def test_the_engine_thread_only_copies_whatever_becomes_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storing, yielding, bringing back, deleting: no file is touched and no digest is made on its thread."""
    monkeypatch.setattr(stored, "_memory", WATCH.memory)
    runner = FakeRunner(VOCAB, ledger=ledger(pages=90))
    shelf = Shelf(tmp_path, fingerprint="fake", budget=20_000)
    engine = Engine(runner, LIMITS, shelf=shelf)
    with WATCH.on():
        for number in range(6):
            asked = Asked(Request(f"r{number}", (*prompt(600, number % 2), number), 5, GREEDY))
            engine.submit(asked.request, asked.hear)
            assert asked.over.wait(60)
            assert runner.continuation(asked.request.prompt, 5) == asked.tokens
        counters = engine.stats().counters
        engine.close()

    assert counters["admits_disk"] >= 2
    assert counters["spills_stored"] >= 2
    assert [] == WATCH.calls


def test_a_request_that_closing_ends_is_told_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.complete(prompt(600))
    live = stage.ask(prompt(50, 3), 40)
    stage.engine.turn()
    ends: list[FinishReason | None] = []
    monkeypatch.setattr(Shelf, "wants", lambda *_, **__: ends.append(live.end))
    stage.engine.close()

    assert {FinishReason.CANCELLED} == set(ends[1:])
