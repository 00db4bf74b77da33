"""Servers that know every answer and write it to the wire in odd ways, for tests of the quality gate.

What they say is right, so a reader that takes half a reply, or an error, for a reply would pass them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from gates.tests.local_server import LocalServer
from gates.tests.quality.scholar import Scholar
from gates.tests.reader import Body, prompt_tokens, tokens

Wire = Callable[[str, Body], Iterator[bytes]]  # of the right text to the bytes of an answer
EVENTS: Final = "text/event-stream"


def event(**chunk: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(text: str | None, **more: Any) -> bytes:
    """One fragment of a reply."""
    return event(choices=[{"index": 0, "delta": {"content": text, **more}}])


def end(reason: str | None = "stop", **more: Any) -> bytes:
    """The last fragment, and the end mark."""
    return event(choices=[{"index": 0, "delta": {}, "finish_reason": reason}], **more) + b"data: [DONE]\n\n"


def counts(text: str, body: Body) -> dict[str, int]:
    """True counts of a reply."""
    said, asked = len(tokens(text)), len(prompt_tokens(body))
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def plain(text: str, body: Body) -> Iterator[bytes]:
    """As it should be."""
    yield delta(text) + end(usage=counts(text, body))


def breaks_off(text: str, body: Body) -> Iterator[bytes]:
    """A reply that the server ended, with an end mark behind it."""
    yield delta(text) + end("abort", usage=counts(text, body))


def no_choices(text: str, body: Body) -> Iterator[bytes]:
    """Chunks without a choice."""
    yield event(choices=[], usage=counts(text, body)) + b"data: [DONE]\n\n"


def no_content(_: str, body: Body) -> Iterator[bytes]:
    """Content that is null."""
    yield delta(None) + end(usage={**counts("", body), "completion_tokens": 1})


def all_reasoning(text: str, body: Body) -> Iterator[bytes]:
    """The whole reply as reasoning."""
    yield delta(None, reasoning=text) + end(usage=counts(text, body))


def error_within(text: str, _: Body) -> Iterator[bytes]:
    """An error behind a whole text."""
    yield delta(text) + b'error: {"code": 500, "message": "out of memory"}\n\n' + end()


def other_end(text: str, body: Body) -> Iterator[bytes]:
    """A finish reason that nobody knows."""
    yield delta(text) + end("tired", usage=counts(text, body))


def no_end(text: str, body: Body) -> Iterator[bytes]:
    """No finish reason at all."""
    yield delta(text) + end(None, usage=counts(text, body))


def cumulative(text: str, body: Body) -> Iterator[bytes]:
    """Each fragment begins anew."""
    yield b"".join(delta(text[: place + 1]) for place in range(len(text))) + end(usage=counts(text, body))


def surrogates(_: str, body: Body) -> Iterator[bytes]:
    """Half of a character outside the basic plane, and a NUL."""
    yield delta("\ud83d\x00") + end(usage={**counts("", body), "completion_tokens": 2})


def drips(text: str, _: Body) -> Iterator[bytes]:
    """Comments for ever, after the text."""
    yield delta(text)
    for _tick in range(200):
        threading.Event().wait(0.02)
        yield b": still here\n\n"


def floods(text: str, _: Body) -> Iterator[bytes]:
    """A text without an end."""
    for _part in range(400):
        yield delta(text * 100)


class _Handler(BaseHTTPRequestHandler):
    server: OddServer

    def do_GET(self) -> None:
        """Health and models."""
        data = json.dumps({"data": [{"id": "odd"}]}).encode()
        self._head("application/json", len(data))
        self.wfile.write(data)

    def do_POST(self) -> None:
        """One answer; a whole one where no stream was asked for is as it should be."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = self.server.scholar.reply(body)
        try:
            if body.get("stream"):
                self._head(self.server.kind)
                for data in self.server.wire(text, body):
                    self.wfile.write(data)
            else:
                self._whole({"message": {"content": text}, "finish_reason": "stop"}, counts(text, body))
        except (BrokenPipeError, ConnectionResetError):
            return

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _whole(self, choice: Mapping[str, Any], usage: Mapping[str, int]) -> None:
        data = json.dumps({"choices": [choice], "usage": usage}).encode()
        self._head("application/json", len(data))
        self.wfile.write(data)

    def _head(self, kind: str, size: int | None = None) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        if size is not None:
            self.send_header("content-length", str(size))
        self.end_headers()


class OddServer(LocalServer):
    """Serves a scholar's answers over an odd wire."""

    def __init__(self, scholar: Scholar, wire: Wire, *, kind: str = EVENTS) -> None:
        super().__init__(_Handler)
        self.scholar, self.wire, self.kind = scholar, wire, kind
