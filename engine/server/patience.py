"""How long a client may take to say what it wants: a bound on the time of a request's first line and headers.

A connection whose headers come in drips would otherwise stay open for ever.  Knows nothing of bodies.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, with `headers_s` seconds from a request's first byte to the end of its headers.

    For the first request they begin with the connection; how long one may idle later is uvicorn's own limit.
    """

    headers_s: ClassVar[float] = 20.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        self._rest()

    def _look(self) -> None:
        """Start the clock when headers are awaited, stop it when they are whole."""
        if self.conn.their_state is not h11.IDLE:
            self._rest()
        elif self._limit is None:
            self._limit = self.loop.call_later(self.headers_s, self._give_up)

    def _rest(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _give_up(self) -> None:
        self._limit = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
