"""A client of one chat stream on a raw socket: what came when, and leaving in the middle.

Small on purpose: it measures, so nothing may stand between the socket and the clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from engine.errors import EngineError, SettingError, shown

DEADLINE_S = 120.0  # for one answer


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
    reply = Reply()
    try:
        await asyncio.wait_for(_stream(address, body, reply, leave_after), DEADLINE_S)
    except TimeoutError:
        reply.error = f"no end within {DEADLINE_S:g} s"
    return reply


async def _stream(address: Address, body: dict[str, Any], reply: Reply, leave_after: int | None) -> None:
    content = json.dumps({**body, "stream": True, "return_token_ids": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: load\r\nContent-Length: {len(content)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(address.host, address.port)
    began = time.perf_counter()
    try:
        writer.write(head.encode() + content)
        if leave_after == 0:
            reply.left = True
            return
        reply.status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
        if reply.status != 200:
            reply.error = (await reader.read(2000)).decode(errors="replace")
            return
        async for event in _events(reader):
            _take(event, reply, time.perf_counter() - began)
            if leave_after is not None and len(reply.ids) >= leave_after:
                reply.left = True
                break
            if reply.finish is not None and event == "[DONE]":
                break
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        reply.error = type(error).__name__
    finally:
        writer.close()


def _take(event: str, reply: Reply, now: float) -> None:
    if event == "[DONE]":
        return
    found = json.loads(event)
    if "error" in found:
        reply.error = str(found["error"].get("message"))
    reply.prompt_tokens = found.get("timings", {}).get("prefill_tokens", reply.prompt_tokens)
    for choice in found.get("choices", ()):
        ids = choice.get("token_ids") or []
        if ids:
            reply.ids += ids
            reply.moments.append((now, len(ids)))
        reply.finish = choice.get("finish_reason") or reply.finish


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """The data of each server-sent event of a chunked body."""
    held = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        held += (await reader.readexactly(size + 2))[:-2]
        *whole, held = held.split(b"\n\n")
        for event in whole:
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    yield line[6:].decode()
