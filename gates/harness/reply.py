"""Replies in the OpenAI chat dialect: their shapes, how they are put together, what can become of a request.

Knows JSON values and nothing of sockets; the HTTP side is in `client.py`.

ClientError            the request did not end in a usable reply
├── Refused            the server answered with an error status or an error object: definite
├── Malformed          the server answered with something that is not the dialect: definite
├── CutShort           the stream ended without its end mark: definite, a part of the reply is kept
├── Gone               no connection, or it was lost: nobody knows what became of the request
└── DeadlinePassed     no end within the deadline: nobody knows what became of the request
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

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
    reasoning_tokens: int | None = None


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
        chunk = json_object(data.encode())
        if "error" in chunk:
            raise refusal(200, chunk)
        try:
            self._take_chunk(chunk, now)
        except (AttributeError, TypeError, ValueError, LookupError) as error:
            raise Malformed(f"not a chunk of a stream: {error!r} in {_short(chunk)}") from error

    def _take_chunk(self, chunk: Mapping[str, Any], now: float) -> None:
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
        content, reasoning = delta.get("content") or "", _reasoning(delta)
        calls = delta.get("tool_calls") or []
        if content or reasoning or calls:
            self.fragment_s.append(now)
        self.text.append(_text(content))
        self.reasoning.append(_text(reasoning))
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
            text=_text(message.get("content") or ""),
            reasoning=_text(_reasoning(message)),
            finish_reason=str(choice["finish_reason"]),
            usage=usage_of(body),
            seconds=seconds,
            first_token_s=None,
            token_ids=tuple(choice.get("token_ids") or ()),
            tool_calls=tuple(calls),
            timings=body.get("timings") or NOTHING,
            model=str(body.get("model") or ""),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise Malformed(f"not a chat.completion object: {error!r} in {_short(body)}") from error


def _reasoning(message: Mapping[str, Any]) -> object:
    """The reasoning under either of its two usual names."""
    return message.get("reasoning_content") or message.get("reasoning") or ""


def usage_of(body: Mapping[str, Any]) -> Usage:
    """The token counts of a reply or of its last chunk; TypeError for counts that are no whole numbers."""
    usage = body.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    said = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")),
        total_tokens=_count(usage.get("total_tokens")),
        reasoning_tokens=_count(said.get("reasoning_tokens")),
    )


def _count(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"a token count is {_short(value)}")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"a text is {type(value).__name__}")


def _flat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {"id": call.get("id", ""), "name": function["name"], "arguments": function["arguments"]}


def model_of(entry: object) -> Model:
    """One entry of the list of models; its context size under any of the three usual names; Malformed."""
    if not isinstance(entry, dict):
        raise Malformed(f"/v1/models lists {_short(entry)}, not an object")
    sizes = (entry.get(name) for name in ("context_length", "max_model_len", "context_window"))
    return Model(str(entry.get("id", "")), next((size for size in sizes if isinstance(size, int)), None))


def json_object(content: bytes) -> Mapping[str, Any]:
    """The JSON object in these bytes; raises Malformed."""
    try:
        body = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {_short(content)}") from error
    if not isinstance(body, dict):
        raise Malformed(f"JSON, but not an object: {_short(body)}")
    return body


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def raise_for_status(status: int, content: bytes) -> None:
    """Raise Refused for any status but 200."""
    if status == 200:
        return
    try:
        body = json_object(content)
    except Malformed:
        raise Refused(status, _short(content), None) from None
    raise refusal(status, body)


def refusal(status: int, body: Mapping[str, Any]) -> Refused:
    """The refusal in an error object of either usual form."""
    error = body.get("error")
    if not isinstance(error, dict):
        return Refused(status, _short(error if error is not None else body), None)
    return Refused(status, str(error.get("message")), error.get("code"))


def _short(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 200 else text[:200] + "..."
