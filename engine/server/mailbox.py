"""Carries events from the engine's thread to the server's event loop, those of a step with one wake-up.

A wake-up is a system call in which the engine's thread gives up the interpreter, and the loop takes it.
Woken by the first letter of sixteen, it was woken nine times a step, and each time the engine waited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from engine.core import Event

Taker = Callable[[Event], None]


class Mailbox:
    """Post from any thread, then `wake`; letters are handed over in order, on one loop until it is closed."""

    def __init__(self) -> None:
        self._letters: deque[tuple[Taker, Event]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False  # a delivery is due that has not begun

    def post(self, loop: asyncio.AbstractEventLoop, take: Taker, event: Event) -> None:
        """Have `take` called on the loop after the next `wake`; RuntimeError for a closed or a second one."""
        if loop.is_closed():
            raise RuntimeError("the event loop is closed; nobody takes letters there any more")
        if loop is not self._loop:
            self._move(loop)
        self._letters.append((take, event))

    def wake(self) -> None:
        """Have everything delivered that was posted."""
        if self._woken or not self._letters or self._loop is None:
            return
        self._woken = True  # before the call: the delivery may be over when it returns
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # it closed meanwhile, and whoever waited there with it
            self._woken = False

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin anew: what was due on a closed loop never comes, and nobody waits for its letters."""
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("another event loop takes these letters; give each loop a mailbox of its own")
        self._letters.clear()
        self._loop, self._woken = loop, False

    def _deliver(self) -> None:
        self._woken = False  # first: a letter posted from here on wakes again
        while self._letters:
            take, event = self._letters.popleft()
            take(event)
