"""The HTTP client of the gates: the OpenAI chat dialect over `httpx2`, with timings and deadlines.

Owns how one request is sent and what can become of it (see the errors below); no other module imports the
HTTP library. Knows nothing of histories and verdicts.

ClientError            the request did not end in a usable reply
├── Refused            the server answered with an error status or an error object: definite
├── Malformed          the server answered with something that is not the dialect: definite
├── CutShort           the stream ended without its end mark: definite, a part of the reply is kept
├── Gone               no connection, or it was lost: nobody knows what became of the request
└── DeadlinePassed     no end within the deadline: nobody knows what became of the request
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import httpx2

from gates.harness.sse import EventParser

Message = Mapping[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})
DONE = "[DONE]"


class ClientError(Exception):
    """Base of everything that keeps one request from ending in a usable reply."""

    definite = False


class Refused(ClientError):  # noqa: N818  named for the event, as it appears in the history
    """An error status, or an error object inside a stream; `status` is 200 for the latter."""

    definite = True

    def __init__(self, status: int, message: str, code: str | None) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.code = code


class Malformed(ClientError):  # noqa: N818
    """The answer is not the dialect; the message names what was found."""

    definite = True


class CutShort(ClientError):  # noqa: N818
    """The stream ended without a finish reason or `[DONE]`; `text` is what had come."""

    definite = True

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class Gone(ClientError):  # noqa: N818
    """The connection could not be made or was lost."""


class DeadlinePassed(ClientError):  # noqa: N818
    """The request had not ended when its deadline passed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the server reports them; None where it does not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished chat reply; times are seconds from the moment before the request was sent."""

    text: str
    reasoning: str
    finish_reason: str
    usage: Usage
    seconds: float
    first_token_s: float | None  # first fragment with text, reasoning or tool call; None when not streamed
    fragments: int = 0
    fragment_s: tuple[float, ...] = ()
    token_ids: tuple[int, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    timings: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `/v1/models`."""

    id: str
    context_tokens: int | None


class Client:
    """Talks to one server; safe for several threads, one connection each."""

    def __init__(
        self,
        base_url: str,
        *,
        deadline_s: float = 600.0,
        api_key: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.deadline_s = deadline_s
        self._clock = clock
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        # trust_env off: a proxy of the host must not come between the gates and the server under test.
        self._http = httpx2.Client(base_url=self.base_url, headers=headers, limits=limits, trust_env=False)

    def healthy(self, *, timeout_s: float = 5.0) -> bool:
        """Whether `/health` answers 200 within the time."""
        try:
            return self._http.get("/health", timeout=timeout_s).status_code == 200
        except httpx2.HTTPError:
            return False

    def listening(self) -> bool:
        """Whether a connection can be made at all; a server that hangs still listens."""
        try:
            self._http.get("/health", timeout=5.0)
        except (httpx2.ReadTimeout, httpx2.WriteTimeout):
            return True
        except httpx2.HTTPError:
            return False
        return True

    def models(self) -> tuple[Model, ...]:
        """What `/v1/models` lists."""
        body = self._get_json("/v1/models")
        entries = body.get("data")
        if not isinstance(entries, list):
            raise Malformed(f"/v1/models: 'data' is {type(entries).__name__}, not a list")
        return tuple(_model(entry) for entry in entries)

    def metrics(self) -> str:
        """The text of `/metrics`."""
        with _translated():
            answer = self._http.get("/metrics", timeout=30.0)
        _raise_for_status(answer.status_code, answer.content)
        return answer.text

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        seed: int | None = None,
        stream: bool = True,
        deadline_s: float | None = None,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Reply:
        """Ask for one chat reply; `extra` members are added to the body. Raises a ClientError otherwise."""
        body: dict[str, Any] = {
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if seed is not None:
            body["seed"] = seed
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= extra
        deadline = self._clock() + (self.deadline_s if deadline_s is None else deadline_s)
        send = self._streamed if stream else self._whole
        with _translated():
            return send(body, deadline)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get_json(self, path: str) -> Mapping[str, Any]:
        with _translated():
            answer = self._http.get(path, timeout=30.0)
        _raise_for_status(answer.status_code, answer.content)
        return _json_object(answer.content)

    def _whole(self, body: Mapping[str, Any], deadline: float) -> Reply:
        start = self._clock()
        # Read as a stream too: a per-read timeout alone would let a server that drips bytes run for ever.
        with self._http.stream("POST", "/v1/chat/completions", json=body, timeout=deadline - start) as answer:
            content = b"".join(self._chunks(answer, deadline))
            status = answer.status_code
        _raise_for_status(status, content)
        return whole_reply(_json_object(content), self._clock() - start)

    def _streamed(self, body: Mapping[str, Any], deadline: float) -> Reply:
        start = self._clock()
        reply = StreamedReply()
        parser = EventParser()
        with self._http.stream("POST", "/v1/chat/completions", json=body, timeout=deadline - start) as answer:
            if answer.status_code != 200:
                _raise_for_status(answer.status_code, b"".join(self._chunks(answer, deadline)))
            for chunk in self._chunks(answer, deadline):
                now = self._clock() - start
                for event in parser.push(chunk):
                    reply.take(event.data, now)
        return reply.finish(self._clock() - start)

    def _chunks(self, answer: httpx2.Response, deadline: float) -> Iterator[bytes]:
        for chunk in answer.iter_raw():
            if self._clock() > deadline:
                raise DeadlinePassed("the reply had not ended when its deadline passed")
            yield chunk


@dataclass(slots=True)
class StreamedReply:
    """Puts one reply together from the data of its events."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    fragment_s: list[float] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    usage: Usage = Usage()
    timings: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str = ""
    model: str = ""
    done: bool = False

    def take(self, data: str, now: float) -> None:
        """Take the data of one event, which came at `now`; raises Refused or Malformed."""
        if data == DONE:
            self.done = True
            return
        chunk = _json_object(data.encode())
        if "error" in chunk:
            raise _refusal(200, chunk)
        self.model = str(chunk.get("model") or self.model)
        if isinstance(chunk.get("usage"), dict):
            self.usage = usage_of(chunk)
        if isinstance(chunk.get("timings"), dict):
            self.timings = chunk["timings"]
        for choice in chunk.get("choices") or []:
            self._take_choice(choice, now)

    def _take_choice(self, choice: Mapping[str, Any], now: float) -> None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise Malformed(f"a delta is {type(delta).__name__}, not an object")
        content, reasoning = delta.get("content") or "", delta.get("reasoning_content") or ""
        calls = delta.get("tool_calls") or []
        if content or reasoning or calls:
            self.fragment_s.append(now)
        self.text.append(content)
        self.reasoning.append(reasoning)
        for call in calls:
            self._take_call(call)
        self.token_ids += choice.get("token_ids") or []
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _take_call(self, call: Mapping[str, Any]) -> None:
        known = self.calls.setdefault(int(call.get("index", 0)), {"id": "", "name": "", "arguments": ""})
        function = call.get("function") or {}
        known["id"] = call.get("id") or known["id"]
        known["name"] = function.get("name") or known["name"]
        known["arguments"] += function.get("arguments") or ""

    def finish(self, seconds: float) -> Reply:
        """The whole reply; raises CutShort when the end mark or the finish reason is missing."""
        text = "".join(self.text)
        if not self.done or not self.finish_reason:
            missing = "[DONE]" if self.finish_reason else "a finish reason"
            raise CutShort(f"the stream ended without {missing} after {len(self.fragment_s)} fragments", text)
        return Reply(
            text=text,
            reasoning="".join(self.reasoning),
            finish_reason=self.finish_reason,
            usage=self.usage,
            seconds=seconds,
            first_token_s=self.fragment_s[0] if self.fragment_s else None,
            fragments=len(self.fragment_s),
            fragment_s=tuple(self.fragment_s),
            token_ids=tuple(self.token_ids),
            tool_calls=tuple(self.calls[index] for index in sorted(self.calls)),
            timings=self.timings,
            model=self.model,
        )


def whole_reply(body: Mapping[str, Any], seconds: float) -> Reply:
    """The reply in a `chat.completion` object; raises Malformed."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        calls = [_flat_call(call) for call in message.get("tool_calls") or []]
        return Reply(
            text=message.get("content") or "",
            reasoning=message.get("reasoning_content") or "",
            finish_reason=str(choice["finish_reason"]),
            usage=usage_of(body),
            seconds=seconds,
            first_token_s=None,
            token_ids=tuple(choice.get("token_ids") or ()),
            tool_calls=tuple(calls),
            timings=body.get("timings") or NOTHING,
            model=str(body.get("model") or ""),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Malformed(f"not a chat.completion object: {error!r} in {_short(body)}") from error


def usage_of(body: Mapping[str, Any]) -> Usage:
    """The token counts of a reply or of its last chunk."""
    usage = body.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        cached_tokens=details.get("cached_tokens"),
        total_tokens=usage.get("total_tokens"),
    )


def _flat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {"id": call.get("id", ""), "name": function["name"], "arguments": function["arguments"]}


def _model(entry: Mapping[str, Any]) -> Model:
    sizes = (entry.get(name) for name in ("context_length", "max_model_len", "context_window"))
    return Model(str(entry.get("id", "")), next((size for size in sizes if isinstance(size, int)), None))


def _json_object(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except ValueError as error:
        raise Malformed(f"not JSON: {_short(content)}") from error
    if not isinstance(body, dict):
        raise Malformed(f"JSON, but not an object: {_short(body)}")
    return body


def _raise_for_status(status: int, content: bytes) -> None:
    if status == 200:
        return
    try:
        body = _json_object(content)
    except Malformed:
        raise Refused(status, _short(content), None) from None
    raise _refusal(status, body)


def _refusal(status: int, body: Mapping[str, Any]) -> Refused:
    error = body.get("error")
    if not isinstance(error, dict):
        return Refused(status, _short(error if error is not None else body), None)
    return Refused(status, str(error.get("message")), error.get("code"))


def _short(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 200 else text[:200] + "..."


class _translated:  # noqa: N801  used like a function: `with _translated():`
    """Turns the HTTP library's exceptions into ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, httpx2.TimeoutException):
            raise DeadlinePassed(f"no answer in time ({type(error).__name__})") from error
        if isinstance(error, httpx2.RemoteProtocolError):
            raise Gone(f"the connection was cut: {error}") from error
        if isinstance(error, httpx2.HTTPError):
            raise Gone(f"no connection: {error}") from error
