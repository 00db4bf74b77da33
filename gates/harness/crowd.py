"""Many requests at a time: so many threads take jobs from one list, and the first that fails stops all.

Knows nothing of what a job is.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Job = TypeVar("Job")
Desk = TypeVar("Desk")

LOOK_S = 0.2  # how often the waiting thread can be interrupted


def share(jobs: Sequence[Job], desks: Sequence[Desk], do: Callable[[Job, Desk], None]) -> None:
    """Do every job, each desk one at a time; raises what the first failing job raised.

    On a failure or an interrupt the others are not waited for: a request under way may take very long.
    """
    _Crowd(jobs, do).work(desks)


class _Crowd(Generic[Job, Desk]):
    """The state that the threads share."""

    def __init__(self, jobs: Sequence[Job], do: Callable[[Job, Desk], None]) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            self._jobs.put(job)
        self._do = do
        self._over = threading.Event()
        self._errors: list[BaseException] = []

    def work(self, desks: Sequence[Desk]) -> None:
        """Run a thread a desk until the list is empty."""
        # Daemons: an interrupted run must not wait for replies that nobody wants any more.
        threads = [threading.Thread(target=self._take, args=(desk,), daemon=True) for desk in desks]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and not self._over.wait(LOOK_S):
                pass
        finally:
            self._over.set()
        if self._errors:
            raise self._errors[0]

    def _take(self, desk: Desk) -> None:
        while not self._over.is_set():
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            try:
                self._do(job, desk)
            except BaseException as error:
                if not self._over.is_set():  # what breaks afterwards is a consequence
                    self._errors.append(error)
                    self._over.set()
                return
