"""Reads the OpenAI chat dialect as servers speak it: whole replies and streams, errors, counts, models.

llama.cpp, vLLM, SGLang, transformers, ds4 and proxies before them write the same things in several ways;
each is read here into one shape, and what is none of them is an error with its reason, never half a reply.
Knows JSON values and nothing of sockets.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gates.harness.reply import (
    NOTHING,
    BrokenOff,
    ClientError,
    CutShort,
    Malformed,
    Model,
    Refused,
    Reply,
    Usage,
)
from gates.harness.shape import parsed_whole
from gates.harness.sse import ServerEvent

DONE: Final = "[DONE]"

# Every finish reason that ends a reply, in this dialect's own word for it: older servers and proxies of other
# dialects have others.
ENDS: Final[Mapping[str, str]] = {
    **{reason: reason for reason in ("stop", "length", "tool_calls", "function_call", "content_filter")},
    **dict.fromkeys(("eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("max_tokens", "model_length"), "length"),
    **dict.fromkeys(("refusal", "safety", "sensitive"), "content_filter"),
}
# A server that breaks a reply off may say so here, with the end mark of a whole one behind it.
BROKEN_OFF: Final = frozenset({"abort", "aborted", "cancelled", "error", "insufficient_system_resource"})


@dataclass(slots=True)
class StreamedReply:
    """Puts one reply together from the data of its events."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    fragment_s: list[float] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    timings: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str = ""
    model: str = ""
    done: bool = False

    def take(self, event: ServerEvent, now: float) -> None:
        """Take one event, which came at `now`; raises Refused or Malformed."""
        if event.data.strip() == DONE:
            self.done = True
            return
        chunk = json_object(event.data.encode())
        if event.name == "error" or chunk.get("error"):
            raise refusal(200, chunk)
        try:
            self._take_chunk(chunk, now)
        except (AttributeError, TypeError, ValueError, LookupError) as error:
            raise Malformed(f"not a chunk of a stream: {error!r} in {_short(chunk)}") from error

    def _take_chunk(self, chunk: Mapping[str, Any], now: float) -> None:
        self.model = str(chunk.get("model") or self.model)
        if isinstance(chunk.get("usage"), dict):
            self.usage = usage_of(chunk)
        self.timings = _timings(chunk) or self.timings
        for choice in _choices(chunk):
            self._take_choice(choice, now)

    def _take_choice(self, choice: Mapping[str, Any], now: float) -> None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise Malformed(f"a delta is {type(delta).__name__}, not an object")
        content, reasoning = _said(delta)
        calls = delta.get("tool_calls") or []
        if content or reasoning or calls:
            self.fragment_s.append(now)
        self.text.append(content)
        self.reasoning.append(reasoning)
        for call in calls:
            self._take_call(call)
        self.token_ids += _token_ids(choice)
        self.finish_reason = _finish_reason(choice, delta) or self.finish_reason

    def _take_call(self, call: Mapping[str, Any]) -> None:
        known = self.calls.setdefault(int(call.get("index", 0)), {"id": "", "name": "", "arguments": ""})
        function = call.get("function") or {}
        known["id"] = call.get("id") or known["id"]
        known["name"] = function.get("name") or known["name"]
        known["arguments"] += function.get("arguments") or ""

    @property
    def _all_there(self) -> bool:
        """Whether nothing but an end mark can be missing, which transformers' server never sends."""
        return bool(self.finish_reason) and self.usage.completion_tokens is not None

    def finish(self, seconds: float) -> Reply:
        """The whole reply; raises CutShort or Malformed when it has no end of its own."""
        text = _sound("".join(self.text))
        if not (self.done or self._all_there):
            missing = "[DONE]" if self.finish_reason else "a finish reason"
            raise CutShort(f"the stream ended without {missing} after {len(self.fragment_s)} fragments", text)
        return _ended(
            Reply(
                text=text,
                reasoning=_sound("".join(self.reasoning)),
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
        )


def whole_reply(body: Mapping[str, Any], seconds: float) -> Reply:
    """The reply in a `chat.completion` object; raises Refused, Malformed or BrokenOff."""
    if body.get("error") and not body.get("choices"):  # under a status that says that all is well
        raise refusal(200, body)
    try:
        (choice,) = _choices(body)
        message = choice["message"]
        text, reasoning = _said(message)
        calls = [_flat_call(call) for call in message.get("tool_calls") or []]
        reply = Reply(
            text=_sound(text),
            reasoning=_sound(reasoning),
            finish_reason=_finish_reason(choice, message),
            usage=usage_of(body),
            seconds=seconds,
            first_token_s=None,
            token_ids=tuple(_token_ids(choice)),
            tool_calls=tuple(calls),
            timings=_timings(body),
            model=str(body.get("model") or ""),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"not a chat.completion object: {error!r} in {_short(body)}") from error
    return _ended(reply)


def _ended(reply: Reply) -> Reply:
    """The reply with its finish reason in one word; BrokenOff or Malformed where that is no end."""
    reason = reply.finish_reason
    if not reason:
        raise BrokenOff(f"the reply has no finish reason, and {len(reply.text)} characters", reply.text)
    if reason in BROKEN_OFF:
        raise BrokenOff(f"the server broke the reply off (finish_reason {reason})", reply.text)
    if reason not in ENDS:
        raise Malformed(f"finish_reason is {reason!r:.80}; known are {', '.join(ENDS)}")
    return replace(reply, finish_reason=ENDS[reason])


def _choices(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The choices, of which a request for one reply gets one; ValueError for another."""
    choices: list[Mapping[str, Any]] = body.get("choices") or []
    others = [choice for choice in choices if choice.get("index", 0) not in (0, None)]
    if others or len(choices) > 1:
        found = [choice.get("index") for choice in choices]
        raise ValueError(f"choices {found!r:.80}, where one reply was asked for, which is number 0")
    return choices


def _finish_reason(choice: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Why the reply ended; a refusal is a field of its own beside a reason of `stop`."""
    return "refusal" if message.get("refusal") else _text(choice.get("finish_reason") or "")


def _said(message: Mapping[str, Any]) -> tuple[str, str]:
    """Text and reasoning; the latter under either of its two usual names, or as a part of the content."""
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    text = "".join(_text(part.get("text") or "") for part in parts if part.get("type") == "text")
    thought = "".join(_thought(part["thinking"]) for part in parts if part.get("type") == "thinking")
    other = {str(part.get("type")) for part in parts} - {"text", "thinking"}
    if other:
        raise TypeError(f"the content has a part of type {min(other)}")
    return text, _text(message.get("reasoning_content") or message.get("reasoning") or "") or thought


def _sound(text: str) -> str:
    """The text with split pairs of surrogates joined; half a character alone becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _thought(value: object) -> str:
    """The text of a part of thoughts: text itself, or parts of text."""
    return _said({"content": value})[0]


def _token_ids(choice: Mapping[str, Any]) -> list[int]:
    ids = choice.get("token_ids") or []
    if not isinstance(ids, list) or not all(type(number) is int for number in ids):
        raise TypeError(f"token_ids is {_short(ids)}")
    return ids


def _timings(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The server's own timings, those of them that a record can hold; they move no verdict."""
    timings = body.get("timings")
    if not isinstance(timings, dict):
        return NOTHING
    return {
        name: value
        for name, value in timings.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def usage_of(body: Mapping[str, Any]) -> Usage:
    """The token counts of a reply or of its last chunk; TypeError for counts that are no whole numbers.

    Cached and reasoning tokens are in details, or beside the other counts in older spellings.
    """
    usage = body.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    said = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))),
        total_tokens=_count(usage.get("total_tokens")),
        reasoning_tokens=_count(said.get("reasoning_tokens", usage.get("reasoning_tokens"))),
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
        body = json.loads(content, parse_constant=_refuse_constant, parse_int=parsed_whole)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {_short(content)}") from error
    if not isinstance(body, dict):
        raise Malformed(f"JSON, but not an object: {_short(body)}")
    return body


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def raise_for_status(status: int, content: bytes, *, retry_after: str | None = None) -> None:
    """Raise Refused for any status but 200; `retry_after` is the header of that name."""
    if status == 200:
        return
    try:
        body = json_object(content)
    except Malformed:
        raise Refused(status, _short(content), None, _seconds(retry_after)) from None
    raise refusal(status, body, retry_after=retry_after)


def no_stream(content: bytes) -> ClientError:
    """What is wrong with an answer that is one object or a page, where a stream was asked for."""
    try:
        body = json_object(content)
    except Malformed:
        return Malformed(f"a stream was asked for, the answer is {_short(content)}")
    if body.get("error"):
        return refusal(200, body)
    return Malformed(f"a stream was asked for, the answer is one object: {_short(body)}")


def refusal(status: int, body: Mapping[str, Any], *, retry_after: str | None = None) -> Refused:
    """The refusal in an error object of any usual form: in `error`, as text there, or bare."""
    error, wait_s = body.get("error") or body, _seconds(retry_after)
    if not isinstance(error, dict) or "message" not in error:
        return Refused(status, _short(error), None, wait_s)
    return Refused(status, str(error.get("message")), error.get("code"), wait_s)


def _seconds(retry_after: str | None) -> float | None:
    """The header in seconds; None where it is missing, a date, or no time that anybody could wait."""
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*", retry_after or "")
    return float(found[1]) if found else None


def _short(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 200 else text[:200] + "..."
