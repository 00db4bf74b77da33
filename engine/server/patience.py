"""A connection outside of requests: bounds on their number and their time, JSON for what is no request.

A connection whose headers come in drips would otherwise stay open for ever, and so would one whose body still
comes in drips after it was refused.  One that sends much in tiny pieces would keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
import functools
import resource
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from engine.errors import CapacityError, EngineError, RequestError
from engine.server.dialects.openai import error_body
from engine.server.stream import STRAIGHT

SLICE = 8 * 1024  # bytes
AT_ONCE = 8  # connections that are taken before others are served


def most_clients() -> int:
    """How many connections may be open: as many files as the system allows, less those of the engine.

    A connection that cannot be taken for want of a file would be tried again, and logged, thousands of times.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed - max(6 * AT_ONCE, allowed // 8)


class PatientProtocol(H11Protocol, asyncio.BufferedProtocol):
    """uvicorn's HTTP/1.1, with `headers_s` seconds from a request's first byte to the end of its headers.

    For the first request they begin with the connection; how long one may idle later is uvicorn's own limit.
    A body that was answered before its end has `rest_s` more: closing at once would take the answer away from
    a client that is still sending.
    It reads `SLICE` bytes in a turn: asyncio's own 256 KiB hold 43,000 chunks of one byte, and parsing these
    takes a second in which nobody else is served.
    `turned_away` is called for each connection that is one too many.
    """

    headers_s: ClassVar[float] = 20.0
    rest_s: ClassVar[float] = 10.0

    def __init__(self, *args: Any, turned_away: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turned_away = turned_away
        self._limit: asyncio.TimerHandle | None = None
        self._slice = bytearray()
        self._inner, self.app = self.app, self._answer

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the application; where a body without a length is chunked it may also write parts straight.

        Every part of a stream passes six functions and the states of h11 otherwise, to become the same bytes.
        """
        if scope["http_version"] == "1.1" and scope["method"] != "HEAD":
            scope = {**scope, "extensions": {STRAIGHT: functools.partial(self._write, self.cycle)}}
        await self._inner(scope, receive, send)

    def _write(self, cycle: RequestResponseCycle, part: bytes) -> bool:
        """Write a part of a chunked body; False before it began, after its end, and while the client lags.

        The connection may serve the next request by then, and a chunk without bytes would end the body.
        """
        over = cycle.disconnected or cycle.response_complete
        if over or not part or self.flow.write_paused or self.conn.our_state is not h11.SEND_BODY:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True

    @property
    def owing(self) -> bool:
        """A request here has no whole answer yet, or its client has not taken all of it.

        May be asked from any thread, even before there is a transport.
        """
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering or bool(self.transport and self.transport.get_write_buffer_size())

    def get_buffer(self, _: int) -> bytearray:
        """Where the event loop puts what it reads next."""
        self._slice = bytearray(SLICE)
        return self._slice

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop when it has read so many bytes."""
        self.data_received(bytes(self._slice[:nbytes]))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        if len(self.connections) > most_clients():
            self._turned_away()
            self._say(503, CapacityError("too many connections are open; close some, or try again soon"))
        else:
            self._look()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        self._rest()

    def on_response_complete(self) -> None:
        """Called by uvicorn when an answer is written."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(self.rest_s, self._hang_up, self.cycle)

    def _should_upgrade(self) -> bool:
        """No other protocol is spoken: as HTTP wants it, the wish is ignored and the request answered."""
        return False

    def send_400_response(self, msg: str) -> None:
        """Called for bytes that are no request: 431 for a head over the limit, else what h11 says.

        They may also be a body whose request was answered already, or is just being answered: that one learns
        that its client is gone.
        """
        error = sys.exc_info()[1]
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        said = "the header lines are too long" if status == 431 else f"this is not HTTP/1.1: {error or msg}"
        self._say(status, RequestError(f"{said}; nothing of it was read", code="invalid_request"))

    def _say(self, status: int, error: EngineError) -> None:
        """Answer what is no request, and hang up."""
        body = msgspec.json.encode(error_body(error))
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", str(len(body)).encode()))
        if isinstance(error, CapacityError):
            headers.append((b"retry-after", str(error.retry_after_s).encode()))
        answer = h11.Response(status_code=status, headers=headers)
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

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

    def _hang_up(self, cycle: object) -> None:
        """Close a connection whose body still comes, unless it came and another request is served now."""
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def _give_up(self) -> None:
        self._limit = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
