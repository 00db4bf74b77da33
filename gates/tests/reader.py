"""An honest small server for tests: it reads its prompts for needle sentences and answers from them alone.

Owns the wire (chat completions as a stream, `/health`, `/v1/models`), a small tokenizer, a prefix cache and
the reading; what a lying server does differently is in `faults`.
Knows no gate.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from itertools import chain
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from gates.tests.local_server import LocalServer

Body = Mapping[str, Any]

_TOKEN: Final = re.compile(r"\s?\d{1,3}|\s?[^\W\d_]+|\s?[^\s\w]|\s?_|\s")
_STATEMENT: Final = re.compile(r"The access code for the ([a-z]+) is (\d{6})\.")
_ASKED: Final = re.compile(r"\bthe ([a-z]+)\b(?! code)")
_CACHED_CONVERSATIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Delta:
    """One fragment of a reply, or of the reasoning before it."""

    text: str
    token_ids: tuple[int, ...] = ()
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The end of a reply: why, and the token counts; an empty `usage` is left out."""

    finish_reason: str
    usage: Mapping[str, Any]


Part = Delta | End


class Backend(Protocol):
    """Answers a chat request part by part, the `End` last."""

    def answer(self, body: Body) -> Iterator[Part]:
        """The parts of the reply; the time until the first one is the time to first token."""


class Cut(Exception):  # noqa: N818  an event on the wire
    """Close the connection without an end mark."""


class Die(Exception):  # noqa: N818  an event on the wire
    """Close the connection and stop listening."""


class Answered(Exception):  # noqa: N818  an event on the wire
    """Answer with another status than 200, or with a body of one's own."""

    def __init__(
        self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body
        self.headers = headers or {}


class Reader:
    """Reads the needle sentences of its prompt; caches by prefix.

    Takes so many seconds for each token of a prompt, and for each of a reply.
    """

    def __init__(self, *, seconds_per_token: float = 0.0, seconds_per_reply_token: float = 0.0) -> None:
        self._seconds_per_token = seconds_per_token
        self._seconds_per_reply_token = seconds_per_reply_token
        self._kept: list[list[str]] = []
        self._lock = threading.Lock()

    def answer(self, body: Body) -> Iterator[Part]:
        """Prefill in real time, then one token a fragment."""
        prompt = prompt_tokens(body)
        cached = self._cached(prompt) if body.get("cache_prompt", True) else 0
        time.sleep(self._seconds_per_token * (len(prompt) - cached))
        thought = [Delta(token, reasoning=True) for token in tokens(self.thought(body))]
        said = [*thought, *map(Delta, tokens(self.reply(body)))][: body["max_tokens"]]
        for number, delta in enumerate(said):
            time.sleep(self._seconds_per_reply_token)
            yield replace(delta, token_ids=(number,))
        kept = [*prompt, *(delta.text for delta in said)]
        with self._lock:
            self._kept = [*self._kept[-_CACHED_CONVERSATIONS + 1 :], kept]
        cut = len(said) == body["max_tokens"]
        yield End("length" if cut else "stop", usage(len(prompt), len(said), cached))

    def thought(self, body: Body) -> str:
        """What is thought before the reply: nothing."""
        del body
        return ""

    def reply(self, body: Body) -> str:
        """What is replied."""
        return reply_text(body)

    def _cached(self, prompt: list[str]) -> int:
        with self._lock:
            common = max((common_tokens(prompt, kept) for kept in self._kept), default=0)
        return min(common, len(prompt) - 1) // 16 * 16


class Upstream:
    """A real server behind this one, such as the engine with the embedded model."""

    def __init__(self, base_url: str, *, deadline_s: float = 600.0) -> None:
        place = urlsplit(base_url)
        self._host, self._port = place.hostname or "127.0.0.1", place.port or 80
        self._deadline_s = deadline_s

    def answer(self, body: Body) -> Iterator[Part]:
        """The parts as they come from the real server, which is asked for a stream in any case."""
        wire = http.client.HTTPConnection(self._host, self._port, timeout=self._deadline_s)
        try:
            streamed = {"stream": True, "stream_options": {"include_usage": True}}
            asked = json.dumps({**body, **streamed}).encode()
            wire.request("POST", "/v1/chat/completions", asked, {"content-type": "application/json"})
            answer = wire.getresponse()
            if answer.status != 200:
                wait = answer.getheader("retry-after")
                headers = {"retry-after": wait} if wait else {}
                raise Answered(answer.status, json.loads(answer.read()), headers)
            yield from _parts(line for line in answer if line.startswith(b"data: "))
        finally:
            wire.close()

    def metrics(self) -> str:
        """What the real server counts."""
        wire = http.client.HTTPConnection(self._host, self._port, timeout=self._deadline_s)
        wire.request("GET", "/metrics")
        text = wire.getresponse().read().decode()
        wire.close()
        return text


def _parts(lines: Iterator[bytes]) -> Iterator[Part]:
    finish = ""
    counts: Mapping[str, Any] = {}
    for line in lines:
        data = line[len(b"data: ") :].strip()
        if data == b"[DONE]":
            yield End(finish, counts)
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise Cut
        counts = chunk.get("usage") or counts
        for choice in chunk.get("choices", []):
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {}
            text, reasoning = delta.get("content") or "", delta.get("reasoning_content") or ""
            if text or reasoning or choice.get("token_ids"):
                yield Delta(reasoning or text, tuple(choice.get("token_ids") or ()), bool(reasoning))
    raise Cut


def chat_body(content: bytes) -> Body:
    """The chat request in these bytes; Answered with 400 when it is none."""
    try:
        body = json.loads(content, parse_constant=_refuse_constant)
        roles = {message["role"] for message in body["messages"]}
        good = roles <= {"system", "user", "assistant"} and body["max_tokens"] >= 0
        if not good or isinstance(body["messages"], str) or not body.get("temperature", 0) >= 0:
            raise ValueError("a member is out of range")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Answered(400, {"error": {"message": f"no chat request: {error!r:.80}"}}) from None
    return body  # type: ignore[no-any-return]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def tokens(text: str) -> list[str]:
    """The small tokenizer: words, up to three digits, marks, each with the blank before it."""
    return _TOKEN.findall(text)


def prompt_tokens(body: Body) -> list[str]:
    """The rendered conversation in tokens, with a mark before and after each message."""
    rendered: list[str] = ["<begin>"]
    for message in body["messages"]:
        rendered += [f"<{message['role']}>", *tokens(message["content"])]
        rendered += ["<end>"] if message["role"] == "assistant" else []
    return [*rendered, "<assistant>"]


def usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """A usage block in the dialect."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def statements(text: str) -> dict[str, str]:
    """Keys and codes of all needle sentences in a text, in their order."""
    return dict(_STATEMENT.findall(text))


def asked_keys(body: Body) -> list[str]:
    """The keys that the last message asks for, in its order."""
    question = body["messages"][-1]["content"].rpartition("\n\nQuestion: ")[2].partition("\n")[0]
    return _ASKED.findall(question)


def reply_text(body: Body) -> str:
    """What an honest reader says: the sentence of every key asked for, or that it is not in the text."""
    known = statements("\n".join(m["content"] for m in body["messages"] if m["role"] == "user"))
    last = body["messages"][-1]["content"]
    if "access code" not in last.rpartition("\n\nQuestion: ")[2]:
        return " ".join(last.split()[:150])
    return " ".join(
        f"The access code for the {key} is {known[key]}."
        if key in known
        else f"The access code for the {key} is not in the text."
        for key in asked_keys(body)
    )


def common_tokens(one: list[str], other: list[str]) -> int:
    """How many leading tokens are the same."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    return next(n for n in range(size) if one[n] != other[n])


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: ReaderServer

    def do_GET(self) -> None:
        """Health and models, which say that all is well, and the numbers of a backend that counts."""
        if self.path == "/metrics" and (count := getattr(self.server.backend, "metrics", None)):
            self._send(200, "text/plain", count().encode())
            return
        models = {"object": "list", "data": [{"id": "reader", "context_length": 1 << 20}]}
        known: dict[str, Mapping[str, Any]] = {"/health": {"status": "ok"}, "/v1/models": models}
        self._json(
            200 if self.path in known else 404, known.get(self.path, {"error": {"message": "no path"}})
        )

    def do_POST(self) -> None:
        """One chat reply, streamed or whole."""
        self.close_connection = True
        try:
            self._answer(self.rfile.read(int(self.headers["content-length"])))
        except Answered as other:
            with suppress(OSError):
                self._send(other.status, "application/json", json.dumps(other.body).encode(), other.headers)
        except (Cut, BrokenPipeError, ConnectionResetError):
            return
        except Die:
            self.server.die()

    def _answer(self, content: bytes) -> None:
        body = self.server.read(content)
        if body.get("stream"):
            self._stream(body)
        else:
            self._json(200, _whole(self.server.backend.answer(body)))

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _json(self, status: int, content: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: int, kind: str, data: bytes, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(data)), **(more or {})}.items():
            self.send_header(name, value)
        if self.close_connection:  # else a client asks again on a connection that is about to end
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: Body) -> None:
        parts = self.server.backend.answer(body)
        first = next(parts)  # what is refused is refused before the head of an answer
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for part in chain([first], parts):
            for chunk in _chunks(part):
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


def _chunks(part: Part) -> Iterator[dict[str, Any]]:
    if isinstance(part, Delta):
        name = "reasoning_content" if part.reasoning else "content"
        yield {"choices": [{"index": 0, "delta": {name: part.text}, "token_ids": list(part.token_ids)}]}
        return
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": part.finish_reason}]}
    if part.usage:
        yield {"choices": [], "usage": dict(part.usage)}


def _whole(parts: Iterator[Part]) -> dict[str, Any]:
    *said, end = list(parts)
    deltas = [part for part in said if isinstance(part, Delta)]
    assert isinstance(end, End)
    message = {
        "role": "assistant",
        "content": "".join(delta.text for delta in deltas if not delta.reasoning),
        "reasoning_content": "".join(delta.text for delta in deltas if delta.reasoning),
    }
    ids = [number for delta in deltas for number in delta.token_ids]
    choice = {"index": 0, "message": message, "finish_reason": end.finish_reason, "token_ids": ids}
    return {"choices": [choice], "usage": dict(end.usage)}


class ReaderServer(LocalServer):
    """Serves a backend."""

    def __init__(self, backend: Backend, *, port: int = 0) -> None:
        super().__init__(_Handler, port=port)
        self.backend = backend

    def read(self, content: bytes) -> Body:
        """The request in these bytes; Answered with 400 when it is none."""
        return chat_body(content)

    def die(self) -> None:
        """Stop listening at once, as a process does that is killed."""
        self.shutdown()
        self.server_close()
