"""Carries events from the engine's thread to the server's event loop, many with one wake-up.

A wake-up is a system call in which the engine's thread gives up the interpreter; one a step is enough.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from engine.core import Event

Taker = Callable[[Event], None]


class Mailbox:
    """Post from any thread; letters are handed over on the loop, in order."""

    def __init__(self) -> None:
        self._letters: deque[tuple[Taker, Event]] = deque()
        self._woken = False  # a delivery is due that has not begun

    def post(self, loop: asyncio.AbstractEventLoop, take: Taker, event: Event) -> None:
        """Have `take` called on the loop; raises RuntimeError when the loop is closed."""
        self._letters.append((take, event))
        if not self._woken:
            self._woken = True  # before the call: the delivery may be over when it returns
            try:
                loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._woken = False
                raise

    def _deliver(self) -> None:
        self._woken = False  # first: a letter posted from here on wakes again
        while self._letters:
            take, event = self._letters.popleft()
            take(event)
