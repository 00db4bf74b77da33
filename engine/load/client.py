"""A client of one chat stream on a raw socket: what came when, and leaving in the middle.

Small on purpose: it measures, so nothing may stand between the socket and the clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from engine.errors import EngineError, SettingError, shown

DEADLINE_S = 120.0  # for one answer
STREAMS = b"HTTP/1.1 200"  # how an answer begins that is read after its end
LAST_CHUNK = b"\r\n0\r\n\r\n"  # on a line of its own, for a header may end in 0 too


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def of(cls, base_url: str) -> Address:
        """From `http://HOST:PORT`, with or without `/v1`."""
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, parts.port or 80
        except ValueError:  # of brackets or of a port that make no address
            host = None
        if host is None or parts.scheme != "http":
            raise SettingError(f"--base-url is {shown(base_url)}; give one like http://127.0.0.1:8000")
        return cls(host, port)


@dataclass(slots=True)
class Reply:
    """One answer: its ids, when they came (seconds after sending), and how it ended."""

    status: int = 0
    ids: list[int] = field(default_factory=list)
    moments: list[tuple[float, int]] = field(default_factory=list)  # when, and how many ids at once
    prompt_tokens: int = 0
    finish: str | None = None
    left: bool = False
    error: str | None = None

    @property
    def first_s(self) -> float | None:
        """Time to the first id."""
        return self.moments[0][0] if self.moments else None

    @property
    def gaps_s(self) -> list[float]:
        """Time between ids; ids that came at once share theirs."""
        found = []
        for (before, _), (now, count) in pairwise(self.moments):
            found += [(now - before) / count] * count
        return found


async def fetch(address: Address, path: str) -> str:
    """The body of a GET; EngineError when there is no answer."""
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: load\r\nConnection: close\r\n\r\n".encode())
        whole = await reader.read()
        writer.close()
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or type(error).__name__  # below 0: a name
        raise EngineError(f"the server at {address.host}:{address.port} cannot be reached: {why}") from None
    return whole.partition(b"\r\n\r\n")[2].decode()


async def stream(address: Address, body: dict[str, Any], *, leave_after: int | None = None) -> Reply:
    """One streamed chat answer; the connection is closed once `leave_after` ids came."""
    content = json.dumps({**body, "stream": True, "return_token_ids": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: load\r\nContent-Length: {len(content)}\r\n\r\n"
    client = _Client(head.encode() + content, leave_after)
    try:
        await asyncio.get_running_loop().create_connection(lambda: client, address.host, address.port)
    except OSError as error:
        client.reply.error = type(error).__name__
        return client.reply
    try:
        await asyncio.wait_for(client.over, DEADLINE_S)
    except TimeoutError:
        client.reply.error = f"no end within {DEADLINE_S:g} s"
    finally:
        client.transport.close()
    client.read()
    return client.reply


class _Client(asyncio.Protocol):
    """Asks, and notes what comes when; that is read after the end, or at once where the end depends on it.

    On few cores a client that reads JSON as it comes takes its time from the server that it measures.
    """

    transport: asyncio.Transport

    def __init__(self, request: bytes, leave_after: int | None) -> None:
        self.reply = Reply()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request, self._leave_after = request, leave_after
        self._came: list[tuple[float, bytes]] = []
        self._text = _Text(self.reply)
        self._end = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self._began = transport, time.perf_counter()
        transport.write(self._request)
        self._leave_if_due()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._came.append((time.perf_counter() - self._began, data))
        self._end = (self._end + data)[-len(LAST_CHUNK) :]
        if self._leave_after is not None or not self._came[0][1].startswith(STREAMS):
            self.read()
            self._leave_if_due()
        if self._end == LAST_CHUNK or self.reply.error is not None:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        if not self.over.done():
            self.reply.error = type(exc or EOFError()).__name__
            self._stop()

    def read(self) -> None:
        """Take in what came since the last time; an answer that makes no sense has that as its error."""
        came, self._came = self._came, []
        try:
            for when, data in came:
                self._text.add(data, when)
        except ValueError as error:
            self.reply.error = f"no answer that can be read: {error}"

    def _leave_if_due(self) -> None:
        if self._leave_after is not None and len(self.reply.ids) >= self._leave_after:
            self.reply.left = True
            self._stop()

    def _stop(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


@dataclass(slots=True)
class _Text:
    """An HTTP answer as it grows: its status, then the events of a chunked body."""

    reply: Reply
    held: bytes = b""
    body: bytes = b""

    def add(self, data: bytes, when: float) -> None:
        self.held += data
        if not self.reply.status:
            head, whole, rest = self.held.partition(b"\r\n\r\n")
            if not whole:
                return
            self.reply.status, self.held = int(head.split(b" ", 2)[1]), rest
        if self.reply.status != 200:
            self.reply.error = self.held.decode(errors="replace") or None
            return
        while chunk := self._chunk():
            *events, self.body = (self.body + chunk).split(b"\n\n")
            for event in events:
                _take(event, self.reply, when)

    def _chunk(self) -> bytes:
        """The next whole chunk of the body, or nothing."""
        size, found, rest = self.held.partition(b"\r\n")
        length = int(size, 16) if found else 0
        if not length or len(rest) < length + 2:
            return b""
        self.held = rest[length + 2 :]
        return rest[:length]


def _take(event: bytes, reply: Reply, now: float) -> None:
    for line in event.split(b"\n"):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        found = json.loads(line[len(b"data: ") :])
        if "error" in found:
            reply.error = str(found["error"].get("message"))
        reply.prompt_tokens = found.get("timings", {}).get("prefill_tokens", reply.prompt_tokens)
        for choice in found.get("choices", ()):
            ids = choice.get("token_ids") or []
            if ids:
                reply.ids += ids
                reply.moments.append((now, len(ids)))
            reply.finish = choice.get("finish_reason") or reply.finish
