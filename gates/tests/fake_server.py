"""A small server in the OpenAI dialect for harness tests: `python -m gates.tests.fake_server --port N`.

Answers every chat with a fixed sentence that repeats the last word asked. Can be told to misbehave. Standard
library only; knows nothing of models.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = (
    "none",
    "dies",
    "hangs",
    "refuses",
    "cut",
    "malformed",
    "slow_start",
    "never_healthy",
    "leaves_child",
    "strict",
    "refuses_thoughts",
)
MEMBERS = {"messages", "max_tokens", "temperature", "seed", "model", "stream", "stream_options"}


class Handler(BaseHTTPRequestHandler):
    """One connection; the server object carries the fault."""

    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_GET(self) -> None:
        """Health, models and metrics."""
        if self.path == "/health":
            ready = self.server.fault != "never_healthy" and time.monotonic() > self.server.ready_at
            self._json(200 if ready else 503, {"status": "ok" if ready else "loading"})
        elif self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "fake", "context_length": 4096}]})
        elif self.path == "/metrics":
            self._send(200, "text/plain", f"asked_total {self.server.asked}\n".encode())
        else:
            self._json(404, {"error": {"message": "no such path", "code": "not_found"}})

    def do_POST(self) -> None:
        """One chat reply, whole or streamed, or the fault."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked += 1
        fault = self.server.fault if self.server.asked > self.server.after else "none"
        if fault == "dies":
            os._exit(9)
        if fault == "hangs":
            time.sleep(60)
        if fault == "refuses":
            self._json(503, {"error": {"message": "no room", "type": "server_error", "code": "overloaded"}})
        elif fault == "strict" and body.keys() - MEMBERS:
            self._json(422, {"detail": f"Unexpected field: {min(body.keys() - MEMBERS)!r}"})
        elif fault == "refuses_thoughts":
            self._json(400, {"error": {"message": "no room for thinking"}})
        elif fault == "malformed":
            self._json(200, {"choices": "none"})
        elif body.get("stream"):
            self._stream(answer(body), cut=fault == "cut")
        else:
            self._json(200, whole(answer(body)))

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, text: str, *, cut: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for data in events(text)[: 2 if cut else None]:
            self.wfile.write(b"data: " + data.encode() + b"\n\n")
            self.wfile.flush()
        self.close_connection = True


class FakeServer(ThreadingHTTPServer):
    """The listening server; misbehaves from request number `after` + 1 on."""

    daemon_threads = True

    def __init__(self, port: int, *, fault: str = "none", after: int = 0, ready_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.fault = fault
        self.after = after
        self.asked = 0
        self.ready_at = time.monotonic() + ready_s

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""


def answer(body: dict[str, Any]) -> str:
    """The fixed sentence with the last word asked."""
    return f"You said {body['messages'][-1]['content'].split()[-1]}"


def usage(text: str) -> dict[str, Any]:
    """Made-up but fixed counts."""
    count = len(text.split())
    return {"prompt_tokens": 10, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 4}}


def whole(text: str) -> dict[str, Any]:
    """A chat completion object."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"object": "chat.completion", "model": "fake", "choices": [choice], "usage": usage(text)}


def events(text: str) -> list[str]:
    """The data of a chat completion stream, one word a delta."""
    words = text.split(" ")
    deltas = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    chunks += [{"choices": [{"delta": {"content": delta}}]} for delta in deltas]
    chunks += [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage(text)}]
    return [*(json.dumps({"model": "fake", **chunk}) for chunk in chunks), "[DONE]"]


def main() -> None:
    """Serve until told to end."""
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--fault", choices=(*FAULTS, "ignores_term", "ends_at_once"), default="none")
    options.add_argument("--after", type=int, default=0)
    chosen = options.parse_args()
    if chosen.fault == "ends_at_once":
        print("no such model", flush=True)
        sys.exit(7)
    if chosen.fault == "ignores_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if chosen.fault == "leaves_child":
        # A session of its own, so that the signal to the server's group does not reach it.
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    ready_s = 0.5 if chosen.fault == "slow_start" else 0.0
    with FakeServer(chosen.port, fault=chosen.fault, after=chosen.after, ready_s=ready_s) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
