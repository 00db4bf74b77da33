"""A thousand clients that leave, at every state a request can be in, leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from typing import Any

import pytest

from engine.config import EngineSettings
from engine.tests.server.live import Live, Script, live_server, until

ABORTS = 1000
TOGETHER = 50
SETTLE_S = 2.0
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}},
}


def request(number: int) -> bytes:
    """A long answer to a prompt that takes several chunks; some of them forced into a form."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"{number} " + "tell me more " * (number % 20)}],
        "stream": number % 3 != 0,
        "cache_prompt": number % 2 == 0,
    }
    if number % 7 == 0:
        body |= {"tools": [TOOL], "tool_choice": "required"}
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def leave(port: int, number: int) -> None:
    """Open a connection and leave it in the state that the number names."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    whole = request(number)
    match number % 8:
        case 0:
            pass
        case 1:
            writer.write(whole[:30])
        case 2:
            writer.write(whole[:-10])
        case 3:
            writer.write(whole)
        case 4:
            writer.write(whole)
            await asyncio.sleep(0.001 * (number % 50))
        case 5 | 6 | 7:
            writer.write(whole)
            await _read(reader, parts=number % 5)
    if number % 2:
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    writer.close()


async def _read(reader: asyncio.StreamReader, parts: int) -> None:
    """Some of the answer, if it comes soon."""
    for _ in range(1 + parts):
        try:
            await asyncio.wait_for(reader.read(200), 0.2)
        except (TimeoutError, ConnectionError):
            return


async def leave_all(port: int) -> None:
    for start in range(0, ABORTS, TOGETHER):
        await asyncio.gather(*(leave(port, number) for number in range(start, start + TOGETHER)))


def settled(live: Live) -> bool:
    stats = live.service.engine.stats()
    return (0, 0) == (stats.running, stats.queued)


@pytest.mark.timeout(300)
def test_a_thousand_clients_that_leave_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    script = Script("Let me think.</think>" + "word " * 200)
    settings = EngineSettings(max_sequences=4, queue_depth=16, prefill_chunk=64, prefill_chunk_live=16)
    with live_server(script, engine=settings) as live:
        for _ in range(5):  # on a busy machine many are gone before the server has heard of them
            asyncio.run(leave_all(live.port))
            if live.service.engine.stats().counters["requests_canceled"] > ABORTS / 10:
                break
        began = time.process_time()  # whoever else is on this machine
        until(lambda: settled(live), seconds=60)
        spent = time.process_time() - began
        engine = live.service.engine
        counters = engine.stats().counters
        left = (
            len(engine._pool.running),
            len(engine._stepper.tickets),
            engine._scheduler.running,
            engine._scheduler.queued,
        )

    ended = sum(counters[f"requests_{how}"] for how in ("completed", "failed", "canceled"))
    assert "socket.send" not in caplog.text, "it wrote on to clients that were gone"
    assert spent < SETTLE_S
    assert (0, 0, 0, 0) == left
    assert 0 == counters["requests_failed"]
    assert counters["requests_started"] == ended + counters["requests_rejected"]
    assert counters["requests_canceled"] > ABORTS / 10, "most left while something was done for them"
