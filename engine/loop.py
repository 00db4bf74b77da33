"""The door of the engine: submit, cancel, stats; one thread runs one step at a time.

Owns that thread and what callers ask of it.  Decides nothing (the scheduler does), computes nothing (the
runner does), and leaves to the stepper what a step is.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from engine.banks import Bank, survey
from engine.cache.shelf import Shelf, ShelfStats
from engine.cache.view import ModelRunner
from engine.core import EventSink, FinishReason, Plan, Request
from engine.errors import CapacityError, ContextLengthError, NotReadyError, RequestError
from engine.metrics import Metrics
from engine.pool import StatePool
from engine.scheduler.memory import MemoryStats
from engine.scheduler.scheduler import Scheduler, SchedulerLimits
from engine.shelving import Reading, Shelving
from engine.stepper import Stepper
from engine.tickets import Ticket


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the engine is doing now and what it did since it started."""

    running: int
    queued: int
    records: int
    memory: MemoryStats
    device_bytes: int  # that the allocator of the device holds; 0 on a CPU
    shelf: ShelfStats | None  # None when nothing is stored on disk
    counters: dict[str, int]


Command = Callable[[], None]


class Engine:
    """Runs requests on a runner; every method may be called from any thread.

    A sink is called on the engine's thread: Started, then Generated, then one Finished; it must not block.
    `told` is called there too, whenever sinks were.
    Token rules work on `aside`, beside a step; None makes two threads for them.
    `stepper` makes what runs the steps; another one may watch them.
    With `threaded` = False there is no engine thread, and whoever made the engine calls `turn`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        limits: SchedulerLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        aside: Executor | None = None,
        threaded: bool = True,
        shelf: Shelf | None = None,
        told: Callable[[], None] = lambda: None,
        stepper: Callable[..., Stepper] = Stepper,
    ) -> None:
        self.limits = limits
        self.metrics = Metrics(clock)
        self._runner = runner
        self._clock = clock
        self._scheduler = Scheduler(limits, runner.ledger)
        self._memory = self._scheduler.memory.stats()  # of the last turn: other threads read it
        self._pool = StatePool(self._scheduler, runner, self.metrics, clock)
        self._shelf = shelf
        if shelf is not None:
            self._pool.shelving = Shelving(
                shelf, runner, self._scheduler, metrics=self.metrics, arrived=self._when_read
            )
        self._aside = aside or ThreadPoolExecutor(2, thread_name_prefix="rules")
        self._stepper = stepper(
            self._scheduler,
            runner,
            self._pool,
            metrics=self.metrics,
            clock=clock,
            aside=self._aside,
            told=told,
            gone=self.cancel,
        )
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._submitted = 0  # requests; guarded by the lock
        self._closing = False  # and so is this
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    @property
    def accepting(self) -> bool:
        """New requests are taken: it is not closing, and nothing ended its thread."""
        return not self._closing

    @property
    def stalled_s(self) -> float:
        """Seconds in which no token moved although a request is open; 0 when none is."""
        return self._clock() - self._stepper.moved if self._open else 0.0

    @property
    def _open(self) -> int:
        """Requests submitted and not ended."""
        ended = self._stepper.ended  # read first, or who comes and goes meanwhile is counted as gone alone
        return self._submitted - ended

    def submit(self, request: Request, sink: EventSink) -> Future[None]:
        """Queue a request; the result is there once it is let in, before the next step.

        Raises at once, before any event: RequestError for an empty prompt, ContextLengthError for one that
        does not fit, CapacityError when the queue is full, NotReadyError when the engine is closing.  Where
        there is no memory for it, the result is a CapacityError, and the only event says so too.
        """
        if not request.prompt:
            raise RequestError("the prompt is empty; send at least one token", param="prompt")
        if len(request.prompt) >= self.limits.context:
            self.metrics.reject("too_long")
            raise ContextLengthError(prompt_tokens=len(request.prompt), context_tokens=self.limits.context)
        with self._lock:
            if self._closing:
                raise NotReadyError("the server is shutting down; send the request to another one")
            if self._open >= self.limits.max_sequences + self.limits.queue_depth:
                self.metrics.reject("queue_depth")
                raise CapacityError(
                    f"{self._open} requests are running or waiting, which is the limit; try again soon"
                )
            if self._open == 0:
                self._stepper.moved = self._clock()
            self._submitted += 1
            self.metrics.add("requests_started")
            ticket = Ticket(request, sink, self._clock())
            let_in: Future[None] = Future()
            # Under the lock, so that whoever closes the door finds it in the inbox, and ends it.
            self._inbox.put(lambda: self._stepper.accept(ticket, let_in))
        return let_in

    def cancel(self, request_id: str) -> None:
        """End a request at the next step boundary; unknown and finished ids are ignored."""
        self._inbox.put(lambda: self._stepper.drop(request_id, FinishReason.CANCELLED))

    def conclude(self, request_id: str) -> None:
        """End a request whose answer is complete before its tokens are; it counts as completed."""
        self._inbox.put(lambda: self._stepper.drop(request_id, FinishReason.STOP))

    def stats(self) -> EngineStats:
        """Numbers of this moment; never waits for a step."""
        total, running = self._open, len(self._pool.running)
        return EngineStats(
            running=running,
            queued=max(0, total - running),
            records=len(self._pool.kept),
            memory=self._memory,
            device_bytes=self._runner.device_bytes,
            shelf=None if self._shelf is None else self._shelf.stats(),
            counters=self.metrics.snapshot(),
        )

    def banks(self) -> list[Bank]:
        """Every sequence in the cache at this moment; never waits for a step."""
        return survey(self._scheduler, self._pool.running, self._pool.kept, self._clock())

    def close(self) -> None:
        """Refuse new requests, cancel the open ones, stop the thread."""
        with self._lock:
            self._closing = True
        self._inbox.put(self._stop)
        if self._thread is None:
            self._read_inbox(wait=False)
            self._stepper.hand_out()
        else:
            self._thread.join()

    # --- everything below runs on the engine's thread ---

    def turn(self, *, wait: bool = False) -> bool:
        """Take in what was asked, then run one step; whether there was nothing to do."""
        self._read_inbox(wait=wait)
        plan = Plan() if self._stopped else self._scheduler.plan()
        self._stepper.execute(plan)
        self._stepper.hand_out()
        self._memory = self._scheduler.memory.stats()
        return plan.idle

    def _run(self) -> None:
        try:
            idle = True
            while not self._stopped:
                if idle:
                    self._scheduler.check()  # now nobody waits for it; a broken engine ends and says so
                idle = self.turn(wait=idle)
        finally:
            self._abandon()
            self._aside.shutdown(wait=False, cancel_futures=True)

    def _read_inbox(self, *, wait: bool) -> None:
        if wait:
            self._inbox.get()()
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            command()

    def _when_read(self, reading: Reading) -> None:
        """A stored state is read, on another thread."""
        self._inbox.put(lambda: self._stepper.take(reading))

    def _stop(self) -> None:
        self._stepper.stop()
        self._pool.close()  # nobody waits for what is stored now
        self._stopped = True

    def _abandon(self) -> None:
        """Refuse everything from now on and leave nobody waiting, whatever ended the thread."""
        with self._lock:
            self._closing = True
        while not self._inbox.empty():
            self._inbox.get_nowait()()
        self._stepper.abandon()
