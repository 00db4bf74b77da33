"""Ctrl-C, TERM and HUP end a run, whatever they fall into.

Python drops an exception that is raised in a finaliser or in a callback of its collector, so an interrupt
that falls there is lost.  Here one that came is raised again, until the block that waits for it is left.
Knows nothing of runs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S: Final = 2.0  # long enough to leave a gate, short enough to wait for


class Interrupts:
    """A context in which each of these signals raises KeyboardInterrupt; for the main thread.

    One that the process was started to ignore, as `nohup` does with HUP, stays ignored.
    """

    def __init__(self) -> None:
        self._came = False
        self._insists = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        wanted = [which for which in ENDING if signal.getsignal(which) is not signal.SIG_IGN]
        handlers = {signal.SIGALRM: self._again, **dict.fromkeys(wanted, self._come)}
        self._before = {which: signal.signal(which, handler) for which, handler in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)  # type: ignore[arg-type]  # what `signal.signal` itself gave

    @contextmanager
    def insistent(self) -> Iterator[None]:
        """Within, an interrupt is raised until it leaves this block; one that was lost before, at once."""
        self._insists = True
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        finally:
            self._insists = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _come(self, _: int, __: FrameType | None) -> None:
        self._came = True
        if self._insists:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        raise KeyboardInterrupt

    def _again(self, _: int, __: FrameType | None) -> None:
        if self._insists:
            raise KeyboardInterrupt
