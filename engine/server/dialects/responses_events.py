"""Writes a response of the OpenAI Responses dialect, whole or as its sequence of numbered events.

Owns the order of items: each is added, filled and done before the next one begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from engine.chat.pieces import CallArguments, CallStart, End, Output, Piece
from engine.errors import EngineError
from engine.server.ask import Ask
from engine.server.dialects.counts import timings
from engine.server.dialects.dialect import Envelope
from engine.server.dialects.probabilities import logprobs
from engine.server.dialects.responses_items import ToolNames, openai_tools, seal
from engine.server.generation import Chunk, Summary
from engine.server.stream import named_frame

ECHOED = ("instructions", "temperature", "top_p", "top_logprobs", "max_output_tokens", "reasoning", "text")


@dataclass(slots=True)
class ResponseWriter:
    """One response; `_items` are those that are done, `_open` the one that is being filled."""

    envelope: Envelope
    ask: Ask
    echo: Mapping[str, Any]
    names: ToolNames
    shows_reasoning: bool
    seals_reasoning: bool
    _number: int = 0
    _items: list[dict[str, Any]] = field(default_factory=list)
    _open: dict[str, Any] | None = None
    _text: str = ""  # of the open item: its text, reasoning or arguments
    _logprobs: list[dict[str, Any]] = field(default_factory=list)  # of the open item's text
    _unsaid: list[dict[str, Any]] = field(default_factory=list)  # those that no delta has carried

    @classmethod
    def of(cls, body: Mapping[str, object], ask: Ask, envelope: Envelope) -> ResponseWriter:
        """The writer for a body that was read without an error."""
        reasoning, include = body.get("reasoning"), body.get("include")
        wanted = reasoning.get("summary") if isinstance(reasoning, dict) else None
        seals = isinstance(include, list) and "reasoning.encrypted_content" in include
        choice = body.get("tool_choice")
        said = {
            **{name: body.get(name) for name in ECHOED},
            "parallel_tool_calls": ask.parallel_calls,
            "tool_choice": "auto" if choice is None else choice,
            "tools": body.get("tools") or [],
            "metadata": body.get("metadata") or {},
        }
        # Written once, and by the one encoder that takes whole numbers of any size.
        echo = {name: Raw(json.dumps(value, ensure_ascii=False).encode()) for name, value in said.items()}
        shows = wanted in ("auto", "concise", "detailed")
        return cls(envelope, ask, echo, openai_tools(body)[1], shows, seals)

    def whole(self, summaries: Sequence[Summary]) -> dict[str, Any]:
        """The whole answer at once."""
        [summary] = summaries
        if summary.reasoning and (self.shows_reasoning or self.seals_reasoning):
            self._open = self._reasoning_item()
            closed = bool(summary.content or summary.calls or summary.end is not End.LENGTH)
            self._end(summary.reasoning, complete=closed)
        if summary.content or not summary.calls:
            self._open, self._logprobs = self._message_item(), logprobs(summary.of_content)
            self._end(summary.content, complete=summary.end is not End.LENGTH)
        for call in summary.calls:
            self._open = self._call_item(CallStart(0, call.id or "", call.name))
            self._end(call.arguments, complete=True)
        return self._response(_status(summary), summary)

    def accepted(self) -> list[bytes]:
        """The response begins."""
        return [self._state("response.created"), self._state("response.in_progress")]

    def admitted(self, _: int) -> list[bytes]:
        """Nothing."""
        return []

    def opened(self, _: int) -> list[bytes]:
        """Nothing."""
        return []

    def chunk(self, _: int, chunk: Chunk) -> list[bytes]:
        """Deltas, with the items and parts they belong to; the first delta of text has the probabilities."""
        self._unsaid = logprobs(chunk.of_content)
        return [frame for piece in chunk.pieces for frame in self._piece(piece)]

    def closed(self, _: int, summary: Summary) -> list[bytes]:
        """The end of the last item and the full response."""
        frames = self._close(complete=summary.end is not End.LENGTH)
        if not self._items or self._items[-1]["type"] == "reasoning":
            frames += self._start(self._message_item())
            frames += self._close(complete=summary.end is not End.LENGTH)
        status = _status(summary)
        return [*frames, self._event(f"response.{status}", response=self._response(status, summary))]

    def finished(self, _: Sequence[Summary]) -> list[bytes]:
        """Nothing more."""
        return []

    def failed(self, error: EngineError) -> list[bytes]:
        """The response failed."""
        response = self._response("failed", None)
        response["error"] = {"code": "server_error", "message": str(error)}
        return [self._event("response.failed", response=response)]

    def silent(self) -> bytes:
        """The state again: the clients' idle timers count events, not comments."""
        return self._state("response.in_progress")

    def _piece(self, piece: Output) -> list[bytes]:
        match piece:
            case Piece(kind="reasoning"):
                return self._reasoning(piece.text)
            case Piece():
                frames = [] if self._is("message") else self._next(self._message_item())
                told, self._unsaid = self._unsaid, []
                self._logprobs += told
                return [*frames, self._delta("response.output_text.delta", piece.text, logprobs=told)]
            case CallStart():
                return self._next(self._call_item(piece))
            case CallArguments():
                if self._is("custom_tool_call"):
                    self._text += piece.text  # its input is known when its JSON is complete
                    return []
                return [self._delta("response.function_call_arguments.delta", piece.text)]

    def _reasoning(self, text: str) -> list[bytes]:
        if not (self.shows_reasoning or self.seals_reasoning):
            return []
        frames = [] if self._is("reasoning") else self._next(self._reasoning_item())
        if not self.shows_reasoning:
            self._text += text
            return frames
        return [*frames, self._delta("response.reasoning_summary_text.delta", text)]

    def _is(self, kind: str) -> bool:
        return self._open is not None and self._open["type"] == kind

    def _next(self, item: dict[str, Any]) -> list[bytes]:
        return self._close(complete=True) + self._start(item)

    def _start(self, item: dict[str, Any]) -> list[bytes]:
        self._open, self._text, self._logprobs = item, "", []
        frames = [self._event("response.output_item.added", output_index=len(self._items), item=item)]
        if item["type"] == "message":
            frames.append(self._placed("response.content_part.added", part=self._text_part("")))
        elif item["type"] == "reasoning" and self.shows_reasoning:
            part = {"type": "summary_text", "text": ""}
            frames.append(self._placed("response.reasoning_summary_part.added", part=part))
        return frames

    def _close(self, *, complete: bool) -> list[bytes]:
        """Finish the open item, if there is one."""
        if self._open is None:
            return []
        text, index = self._text, len(self._items)
        frames = self._done_frames(text)
        item = self._end(text, complete=complete)
        return [*frames, self._event("response.output_item.done", output_index=index, item=item)]

    def _done_frames(self, text: str) -> list[bytes]:
        assert self._open is not None
        match self._open["type"]:
            case "message":
                part = self._text_part(text)
                return [
                    self._placed("response.output_text.done", text=text, logprobs=self._logprobs),
                    self._placed("response.content_part.done", part=part),
                ]
            case "reasoning" if self.shows_reasoning:
                part = {"type": "summary_text", "text": text}
                return [
                    self._placed("response.reasoning_summary_text.done", text=text),
                    self._placed("response.reasoning_summary_part.done", part=part),
                ]
            case "function_call":
                name = self._open["name"]
                return [self._placed("response.function_call_arguments.done", arguments=text, name=name)]
            case "custom_tool_call":
                given = _custom_input(text)
                return [
                    self._placed("response.custom_tool_call_input.delta", delta=given),
                    self._placed("response.custom_tool_call_input.done", input=given),
                ]
        return []

    def _end(self, text: str, *, complete: bool) -> dict[str, Any]:
        """Fill the open item with its text and put it with those that are done."""
        assert self._open is not None
        item = {**self._open, "status": "completed" if complete else "incomplete"}
        match item["type"]:
            case "message":
                item["content"] = [self._text_part(text)]
            case "reasoning":
                item["summary"] = [{"type": "summary_text", "text": text}] if self.shows_reasoning else []
                if self.seals_reasoning:
                    item["encrypted_content"] = seal(text)
            case "function_call":
                item["arguments"] = text
            case "custom_tool_call":
                item["input"] = _custom_input(text)
        self._items.append(item)
        self._open = None
        return item

    def _call_item(self, call: CallStart) -> dict[str, Any]:
        space, name = self.names.namespaces.get(call.name, ("", call.name))
        inside = {"namespace": space} if space else {}
        same = {"status": "in_progress", "call_id": call.id, "name": name, **inside}
        if call.name in self.names.custom:
            return {"id": self._item_id("ctc"), "type": "custom_tool_call", **same, "input": ""}
        return {"id": self._item_id("fc"), "type": "function_call", **same, "arguments": ""}

    def _reasoning_item(self) -> dict[str, Any]:
        same = {"status": "in_progress", "summary": [], "content": []}
        return {"id": self._item_id("rs"), "type": "reasoning", **same}

    def _message_item(self) -> dict[str, Any]:
        same = {"status": "in_progress", "role": "assistant", "content": []}
        return {"id": self._item_id("msg"), "type": "message", **same}

    def _text_part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self.envelope.key}{len(self._items):03d}"

    def _delta(self, kind: str, text: str, **members: Any) -> bytes:
        self._text += text
        return self._placed(kind, delta=text, **members)

    def _placed(self, kind: str, **members: Any) -> bytes:
        """An event about the open item."""
        assert self._open is not None
        place: dict[str, Any] = {"item_id": self._open["id"], "output_index": len(self._items)}
        if self._open["type"] == "message":
            place["content_index"] = 0
        elif self._open["type"] == "reasoning":
            place["summary_index"] = 0
        return self._event(kind, **place, **members)

    def _state(self, kind: str) -> bytes:
        return self._event(kind, response=self._response("in_progress", None))

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return named_frame({"type": kind, "sequence_number": number, **members})

    def _response(self, status: str, summary: Summary | None) -> dict[str, Any]:
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        counts = {} if summary is None else {"usage": _usage(summary), "timings": timings([summary])}
        return {
            "id": f"resp_{self.envelope.key}",
            "object": "response",
            "created_at": self.envelope.created,
            "status": status,
            "model": self.envelope.model,
            "output": list(self._items),
            "error": None,
            "incomplete_details": incomplete,
            "previous_response_id": None,
            "truncation": "disabled",
            **self.echo,
            **counts,
        }


def _custom_input(arguments: str) -> str:
    """The free text of a custom call; what is left of it when the answer was cut inside."""
    try:
        found = json.loads(arguments).get("input", arguments)
    except ValueError:
        return arguments
    return found if isinstance(found, str) else arguments


def _status(summary: Summary) -> str:
    return "incomplete" if summary.end is End.LENGTH else "completed"


def _usage(summary: Summary) -> dict[str, Any]:
    prompt, cached = summary.timings.prompt_tokens, summary.timings.cached_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": prompt - cached},
        "output_tokens": summary.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": summary.reasoning_tokens},
        "total_tokens": prompt + summary.completion_tokens,
    }
