"""Server-sent events, and noticing that a client is gone.

Owns frames, silences and the race between work and disconnection.  Knows nothing of their content.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
STRAIGHT = "sparkgate.straight"  # among a scope's extensions: a function like `_nowhere`
YIELD_EVERY = 4  # frames
KEEPALIVE = b": keepalive\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


def data_frame(value: Any) -> bytes:
    """One event without a name."""
    data: bytes = msgspec.json.encode(value)
    return b"data: " + data + b"\n\n"


def named_frame(value: Mapping[str, Any]) -> bytes:
    """One event named by its own `type`."""
    return f"event: {value['type']}\n".encode() + data_frame(value)


async def until_gone(work: Awaitable[T], receive: Receive) -> T:
    """The result of the work; raises ClientGoneError and cancels the work when the client leaves first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return await task
    finally:
        await _stop(task, gone)


class EventStream:
    """An ASGI response that sends frames as they come and `silent` after every silence.

    `ended` is called in the end, whatever it was: a generator that never began notices nothing of it.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        silent: Callable[[], bytes],
        keepalive_s: float,
        ended: Callable[[], None],
    ) -> None:
        self._frames = frames
        self._silent = silent
        self._keepalive_s = keepalive_s
        self._ended = ended
        self._straight: Callable[[bytes], bool] = _nowhere
        self._sending = False
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; ends early, without an error, when the client leaves."""
        self._straight = scope.get("extensions", {}).get(STRAIGHT, _nowhere)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._stream(receive, send)
        finally:
            self._ended()
            await self._frames.aclose()

    async def _stream(self, receive: Receive, send: Send) -> None:
        pump = asyncio.ensure_future(self._pump(send))
        gone = asyncio.ensure_future(_gone(receive))
        silence = asyncio.ensure_future(self._fill_silence(send))
        gone.add_done_callback(lambda _: pump.cancel())
        try:
            await pump
        except asyncio.CancelledError:
            if not gone.done():
                raise
        finally:
            await _stop(gone, silence, pump)

    async def _pump(self, send: Send) -> None:
        """One task for the whole stream: another one for each frame would double what a token costs."""
        sent = 0
        async for data in self._frames:
            await self._send(send, data)
            sent += 1
            if sent % YIELD_EVERY == 0:  # frames that are ready must not keep others, or a goodbye, waiting
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _fill_silence(self, send: Send) -> None:
        """Never between two frames that came together: the next one must be waited for."""
        clock = asyncio.get_running_loop().time
        self._sent_at = clock()
        while True:
            await asyncio.sleep(max(0.0, self._sent_at + self._keepalive_s - clock()))
            if self._sending:
                self._sent_at = clock()
            elif clock() - self._sent_at >= self._keepalive_s:
                await self._send(send, self._silent())

    async def _send(self, send: Send, data: bytes) -> None:
        if not self._straight(data):
            self._sending = True
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sending = False
        self._sent_at = asyncio.get_running_loop().time()


def _nowhere(_: bytes) -> bool:
    """Write a part of a body that is being sent, past all that wraps `send`; False when that cannot be."""
    return False


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
