"""Clients without manners: they leave in the middle, stay half open, or send what is no request.

Each is one connection of the standard library's own client, so that it can be broken at any point.
Records what became of it; judges nothing.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from gates.harness.client import Client
from gates.harness.history import History

PATH: Final = "/v1/chat/completions"
REPLY_S: Final = 10.0  # a refusal takes no computing
IN_STREAM: Final = 200  # bytes of an answer that are read before leaving: its head and a first event

_GOOD: Final[Mapping[str, Any]] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
_BODIES: Final[Mapping[str, bytes]] = {
    "no_json": b"{",
    "no_object": b"[]",
    "no_messages": b"{}",
    "messages_text": b'{"messages": "hello"}',
    "unknown_role": b'{"messages": [{"role": "king", "content": "hello"}]}',
    "negative_tokens": json.dumps({**_GOOD, "max_tokens": -1}).encode(),
    "text_for_number": json.dumps({**_GOOD, "temperature": "hot"}).encode(),
    "not_a_number": b'{"messages": [{"role": "user", "content": "hello"}], "temperature": NaN}',
    "not_utf8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "nested": b"[" * 50_000,
    "empty_body": b"",
}


@dataclass(slots=True)
class Rude:
    """Misbehaves towards one server; keeps half-open connections until `close`."""

    client: Client
    history: History
    body: Mapping[str, Any]  # a good request with a long answer
    _open: list[http.client.HTTPConnection] = field(default_factory=list)

    def leave(self, kind: str) -> None:
        """Send a good request, or half of one, and leave it; `half_...` stay open and say no more."""
        op = self.history.invoke(kind)
        content = json.dumps({**self.body, "stream": True}).encode()
        connection = self._connection()
        half = kind.removeprefix("half_") if kind.startswith("half_") else ""
        read = b""
        try:
            self._ask(connection, content, half=half)
            if kind.startswith("reset"):  # now: an answer that is read to its end closes by itself
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if kind.endswith("in_stream"):
                read = _begun(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.history.fail(op, kind, error=type(error).__name__, message=str(error))
            connection.close()
            return
        if half:
            self._open.append(connection)
        else:
            connection.close()
        self.history.ok(op, kind, read_bytes=len(read))

    def malformed(self, kind: str) -> None:
        """Send what is no request and read the answer."""
        op, start_s = self.history.invoke("malformed", sent=kind), time.monotonic()
        connection = self._connection()
        try:
            self._ask(connection, _BODIES[kind])
            answer = connection.getresponse()
            said = answer.read(2000).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            self.history.unknown(op, "malformed", error=type(error).__name__, message=str(error), alive=True)
        else:
            took = round(time.monotonic() - start_s, 3)
            self.history.ok(op, "malformed", status=answer.status, text=said, seconds=took)
        finally:
            connection.close()

    def close(self) -> None:
        """End what is still open."""
        for connection in self._open:
            connection.close()
        self._open.clear()

    def _connection(self) -> http.client.HTTPConnection:
        place = urlsplit(self.client.base_url)
        make: Callable[..., http.client.HTTPConnection] = (
            http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        )
        return make(place.hostname or "", place.port, timeout=REPLY_S)

    def _ask(self, connection: http.client.HTTPConnection, content: bytes, *, half: str = "") -> None:
        """The request, or only its head without an end, or its head and half of its body."""
        if half == "head":
            connection.connect()
            connection.send(f"POST {PATH} HTTP/1.1\r\ncontent-length: {len(content)}\r\n".encode())
            return
        connection.putrequest("POST", PATH)
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", str(len(content)))
        for name, value in self.client.credentials.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(content[: len(content) // 2] if half else content)


def _begun(answer: http.client.HTTPResponse) -> bytes:
    """The beginning of a good answer; HTTPException for another one, which nobody can leave in its middle."""
    read = answer.read(IN_STREAM)
    if answer.status != 200:
        raise http.client.HTTPException(f"HTTP {answer.status}: {read.decode('utf-8', 'replace')}")
    return read
