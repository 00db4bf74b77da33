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

    Closing the generator is how the work learns that the client is gone.
    """

    def __init__(
        self, frames: AsyncGenerator[bytes, None], *, silent: Callable[[], bytes], keepalive_s: float
    ) -> None:
        self._frames = frames
        self._silent = silent
        self._keepalive_s = keepalive_s

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send everything; ends early, without an error, when the client leaves."""
        gone = asyncio.ensure_future(_gone(receive))
        upcoming: asyncio.Future[bytes] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            while not gone.done():
                upcoming = upcoming or asyncio.ensure_future(anext(self._frames))
                both: set[asyncio.Future[Any]] = {upcoming, gone}
                await asyncio.wait(both, timeout=self._keepalive_s, return_when=asyncio.FIRST_COMPLETED)
                if not upcoming.done():
                    await _send(send, self._silent())
                    continue
                try:
                    data = upcoming.result()
                except StopAsyncIteration:
                    break
                upcoming = None
                await _send(send, data)
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await _stop(gone, *([upcoming] if upcoming else []))
            await self._frames.aclose()


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
