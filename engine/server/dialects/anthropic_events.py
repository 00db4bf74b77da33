"""Writes a message of the Anthropic dialect, whole or as its sequence of events.

Owns the order of blocks: strictly one after the other, thinking first, each delta in a block of its own type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from engine.chat.pieces import CallArguments, CallStart, End, Output, Piece
from engine.errors import EngineError
from engine.server.dialects.counts import timings
from engine.server.dialects.dialect import Envelope
from engine.server.generation import Chunk, Summary
from engine.server.stream import KEEPALIVE, named_frame

PING = named_frame({"type": "ping"})


@dataclass(slots=True)
class MessageWriter:
    """One message; `_block` is the type of the block that is open, `_index` its number."""

    envelope: Envelope
    _started: bool = False
    _cached: int = 0
    _index: int = -1
    _block: str | None = None
    _said: bool = False  # a text or a call was begun

    def whole(self, summaries: Sequence[Summary]) -> dict[str, Any]:
        """The whole answer at once."""
        [summary] = summaries
        content: list[dict[str, Any]] = []
        if summary.reasoning:
            content.append(
                {"type": "thinking", "thinking": summary.reasoning, "signature": self._signature()}
            )
        if summary.content or not summary.calls:
            content.append({"type": "text", "text": summary.content})
        for call in summary.calls:
            given = Raw(
                call.arguments.encode()
            )  # as it stands: JSON has larger numbers than an encoder takes
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
        ended = {"stop_reason": stop_reason(summary), "stop_sequence": summary.stopped_by}
        counts = {**self._usage(summary.timings.cached_tokens), **_output(summary)}
        return {**self._message(content), **ended, "usage": counts, "timings": timings([summary])}

    def accepted(self) -> list[bytes]:
        """A comment: nothing else may come before the start of the message."""
        return [KEEPALIVE]

    def admitted(self, cached_tokens: int) -> list[bytes]:
        """The start of the message, with the counts of its prompt."""
        self._started, self._cached = True, cached_tokens
        usage = {**self._usage(cached_tokens), "output_tokens": 0}
        message = {**self._message([]), "stop_reason": None, "stop_sequence": None, "usage": usage}
        return [named_frame({"type": "message_start", "message": message}), PING]

    def opened(self, _: int) -> list[bytes]:
        """Nothing; but a request that ended while it waited still gets the start of its message."""
        return [] if self._started else self.admitted(0)

    def chunk(self, _: int, chunk: Chunk) -> list[bytes]:
        """Deltas, with the starts and stops of blocks between them."""
        return [frame for piece in chunk.pieces for frame in self._piece(piece)]

    def closed(self, _: int, summary: Summary) -> list[bytes]:
        """The stop of the last block, the reason with the final counts, the stop of the message."""
        frames = [] if self._said else self._open("text", {"text": ""})
        frames += self._close()
        usage = {**self._usage(summary.timings.cached_tokens), **_output(summary)}
        delta = {"stop_reason": stop_reason(summary), "stop_sequence": summary.stopped_by}
        last = {"type": "message_delta", "delta": delta, "usage": usage, "timings": timings([summary])}
        return [*frames, named_frame(last), named_frame({"type": "message_stop"})]

    def finished(self, _: Sequence[Summary]) -> list[bytes]:
        """Nothing more."""
        return []

    def failed(self, error: EngineError) -> list[bytes]:
        """An error event."""
        kind = "overloaded_error" if error.status == 503 else "api_error"
        return [named_frame({"type": "error", "error": {"type": kind, "message": str(error)}})]

    def silent(self) -> bytes:
        """A ping, or a comment before the start of the message."""
        return PING if self._started else KEEPALIVE

    def _piece(self, piece: Output) -> list[bytes]:
        match piece:
            case Piece(kind="reasoning"):
                frames = self._ensure("thinking", {"thinking": "", "signature": ""})
                return [*frames, self._delta("thinking_delta", thinking=piece.text)]
            case Piece():
                frames = self._ensure("text", {"text": ""})
                return [*frames, self._delta("text_delta", text=piece.text)]
            case CallStart():
                return self._open("tool_use", {"id": piece.id, "name": piece.name, "input": {}})
            case CallArguments():
                return [self._delta("input_json_delta", partial_json=piece.text)]

    def _ensure(self, kind: str, members: dict[str, Any]) -> list[bytes]:
        return [] if self._block == kind else self._open(kind, members)

    def _open(self, kind: str, members: dict[str, Any]) -> list[bytes]:
        frames = self._close()
        self._index += 1
        self._block = kind
        self._said = self._said or kind != "thinking"
        block = {"type": kind, **members}
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return [*frames, named_frame(start)]

    def _close(self) -> list[bytes]:
        if self._block is None:
            return []
        signed = (
            [self._delta("signature_delta", signature=self._signature())] if self._block == "thinking" else []
        )
        self._block = None
        return [*signed, named_frame({"type": "content_block_stop", "index": self._index})]

    def _delta(self, kind: str, **members: str) -> bytes:
        delta = {"type": kind, **members}
        return named_frame({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": f"msg_{self.envelope.key}", "type": "message", "role": "assistant"}
        return {**head, "model": self.envelope.model, "content": content}

    def _signature(self) -> str:
        """Opaque to clients, which send it back; nothing is checked by it."""
        return f"unsigned-{self.envelope.key}"

    def _usage(self, cached: int) -> dict[str, int]:
        """The three counts of the prompt, which add up to it; nothing is charged for keeping a prefix."""
        return {
            "input_tokens": self.envelope.prompt_tokens - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
        }


def _output(summary: Summary) -> dict[str, Any]:
    details = {"thinking_tokens": summary.reasoning_tokens}
    return {"output_tokens": summary.completion_tokens, "output_tokens_details": details}


def stop_reason(summary: Summary) -> str:
    """Why the message ends, in the words of this dialect."""
    if summary.end is End.TOOL_CALLS:
        return "tool_use"
    if summary.end is End.LENGTH:
        return "model_context_window_exceeded" if summary.context_full else "max_tokens"
    return "end_turn" if summary.stopped_by is None else "stop_sequence"
