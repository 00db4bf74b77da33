"""A stream of frames: it ends with its client, however fast the frames come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from engine.server.stream import STRAIGHT, EventStream


def test_frames_that_are_all_ready_do_not_hide_that_the_client_left() -> None:
    sent: list[bytes] = []
    closed: list[bool] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        try:
            for number in range(10_000):
                yield b"%d" % number
        finally:
            closed.append(True)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    stream = EventStream(frames(), silent=lambda: b"", keepalive_s=5.0, ended=lambda: closed.append(True))
    asyncio.run(stream({}, receive, send))

    assert len(sent) < 20
    assert [True, True] == closed


def test_silence_is_filled_and_the_end_is_sent() -> None:
    sent: list[bytes] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"first"
        await asyncio.sleep(0.2)
        yield b"last"

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b"start"))

    stream = EventStream(frames(), silent=lambda: b"quiet", keepalive_s=0.05, ended=lambda: None)
    asyncio.run(stream({}, receive, send))

    assert (b"start", b"first", b"last", b"") == (sent[0], sent[1], sent[-2], sent[-1])
    assert {b"quiet"} == set(sent[2:-2])


def test_a_stream_whose_head_cannot_be_sent_ends_its_work() -> None:
    ended: list[bool] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"never asked for"

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        raise OSError("the connection is gone")

    stream = EventStream(frames(), silent=lambda: b"", keepalive_s=5.0, ended=lambda: ended.append(True))
    with pytest.raises(OSError, match="the connection is gone"):
        asyncio.run(stream({}, receive, send))

    assert [True] == ended


def test_parts_go_straight_where_they_can_and_in_order() -> None:
    way: list[tuple[str, bytes]] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        for frame in (b"one", b"lags", b"two"):
            yield frame

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        way.append(("sent", message.get("body", b"head")))

    def straight(part: bytes) -> bool:
        if part == b"lags":
            return False
        way.append(("straight", part))
        return True

    stream = EventStream(frames(), silent=lambda: b"", keepalive_s=5.0, ended=lambda: None)
    asyncio.run(stream({"extensions": {STRAIGHT: straight}}, receive, send))

    assert way == [
        ("sent", b"head"),
        ("straight", b"one"),
        ("sent", b"lags"),
        ("straight", b"two"),
        ("sent", b""),
    ]
