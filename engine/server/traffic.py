"""What the server's sockets are doing: the numbers that no other part knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """What the server's sockets are doing; both functions are called on the event loop's thread.

    `last` is the timings block of the answer that ended last.
    """

    clients: Callable[[], int] = lambda: 0
    backlog_bytes: Callable[[], int] = lambda: 0
    body_bytes: int = 0
    last: dict[str, object] | None = None
