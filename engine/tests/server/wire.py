"""Requests and streams as they stand on the wire, without any client library between."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from typing import Any

import httpx2

from engine.tests.server.live import Live

TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event; `name` is empty where the dialect names none."""

    name: str
    data: Any


def message(raw: socket.socket) -> bytes:
    """One whole request or answer off a socket, by its content-length; less if the other end hangs up.

    A head and its body may come in two parts, and who closes before having read both resets the connection.
    """
    found = b""
    while part := raw.recv(65536):
        found += part
        head, end, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if end and len(body) >= (int(length[1]) if length else 0):
            break
    return found


def post(live: Live, path: str, body: Any, **headers: str) -> httpx2.Response:
    """Send one JSON body; bytes go out as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(
        live.base_url + path, content=content, headers=headers, timeout=TIMEOUT_S, verify=False
    )


def get(live: Live, path: str, **headers: str) -> httpx2.Response:
    """Fetch one path."""
    return httpx2.get(live.base_url + path, headers=headers, timeout=TIMEOUT_S, verify=False)


def stream(live: Live, path: str, body: dict[str, Any]) -> list[Event]:
    """All events of a streamed answer, comments left out."""
    answer = post(live, path, {**body, "stream": True})
    assert 200 == answer.status_code, answer.text
    assert "text/event-stream; charset=utf-8" == answer.headers["content-type"]
    return events(answer.text)


def events(text: str) -> list[Event]:
    """The events of a stream's text."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in lines:
            data = lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"])
            found.append(Event(lines.get("event", ""), data))
    return found
