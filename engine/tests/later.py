"""An executor that does nothing until it is told to: the order of all that happens is the test's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Promise(Future[Any]):
    """Whoever waits for it lets the executor work."""

    def __init__(self, owner: Later) -> None:
        super().__init__()
        self._owner = owner

    def result(self, timeout: float | None = None) -> Any:
        """What came of it."""
        while not self.done():
            self._owner.work(1)
        return super().result(timeout)


class Later(Executor):
    """Jobs in the order they came."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()

    @property
    def waiting(self) -> int:
        """Jobs that are not done."""
        return len(self._jobs)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Promise:
        """Note a job."""
        promise = Promise(self)

        def job() -> None:
            try:
                promise.set_result(fn(*args, **kwargs))
            except Exception as error:
                promise.set_exception(error)

        self._jobs.append(job)
        return promise

    def work(self, count: int | None = None) -> None:
        """Do so many jobs, or all."""
        while self._jobs and count != 0:
            self._jobs.popleft()()
            count = None if count is None else count - 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Finish everything."""
        self.work()
