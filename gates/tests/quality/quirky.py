"""A second, independent small server in the OpenAI dialect, with other habits than ours; for tests.

No `/health`, a model name is demanded, no token counts, no reasoning field (thoughts stand in tags in the
text), other finish reasons, events with CR LF and comments, several words in a fragment.
Answers sums of two numbers by reading them; shares no code with the other servers of the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from gates.tests.local_server import LocalServer

MODEL: Final = "quirky-7b"


def answer(body: Mapping[str, Any]) -> str:
    """What it says to the last message, its thoughts in tags when the request wants them."""
    asked = body["messages"][-1]["content"]
    numbers = [int(found) for found in re.findall(r"\d+", asked)]
    said = f"In all that is\n#### {sum(numbers)}"
    thinks = body.get("chat_template_kwargs", {}).get("enable_thinking")
    return f"<think>I add {numbers}.</think>\n{said}" if thinks else said


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The list of models; nothing else is there."""
        known = self.path == "/v1/models"
        self._say(200 if known else 404, {"data": [{"id": MODEL}]} if known else {"detail": "Not Found"})

    def do_POST(self) -> None:
        """One reply, streamed or whole."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("model") != MODEL:
            self._say(400, {"error": "the field 'model' is wrong or missing"})
        elif body.get("stream"):
            self._stream(answer(body))
        else:
            message = {"role": "assistant", "content": answer(body)}
            self._say(200, {"choices": [{"message": message, "finish_reason": "eos_token"}]})

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _say(self, status: int, content: Mapping[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(": here it comes\r\n\r\n")
        for place in range(0, len(text), 9):
            delta = {"role": "assistant", "content": text[place : place + 9], "reasoning": None}
            self._chunk(f"data:{json.dumps({'choices': [{'delta': delta}], 'usage': None})}\r\n\r\n")
        end = {"choices": [{"delta": {}, "finish_reason": "eos_token"}]}
        self._chunk(f"event: message\r\ndata: {json.dumps(end)}\r\n\r\ndata: [DONE]\r\n\r\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


class QuirkyServer(LocalServer):
    """Serves it."""

    def __init__(self) -> None:
        super().__init__(_Handler)
