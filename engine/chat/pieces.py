"""What becomes visible of an answer, bit by bit, and what a parser of answers looks like.

Knows nothing of how the model spells any of it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from engine.chat.request import ToolCall

BlockResult = Literal["ok", "repaired", "failed"]


def call_id(prefix: str = "call_") -> str:
    """An unguessable id for a tool call: knowing it is what lets a client send the call back."""
    return f"{prefix}{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one kind that can be handed out now."""

    kind: Literal["reasoning", "content"]
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins; `index` counts the calls of the answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments; all parts together are the JSON text of an object."""

    index: int
    text: str


Output = Piece | CallStart | CallArguments


class Parser(Protocol):
    """Turns decoded text into what clients see.  Push text and thinking markers in order, then `finish`.

    `end` is set as soon as the parser itself knows that the answer is over.
    `content` and `calls` are the whole answer.  Where `spoiled`, a stream has shown a call that never closed.
    `block` is the text of a tool block that can be sent back as it stands; `tool_result` is how it read.
    """

    end: End | None
    stopped_by: str | None
    reasoning: str
    content: str
    calls: list[ToolCall]
    spoiled: bool
    tool_result: BlockResult | None
    block: str | None

    @property
    def in_reasoning(self) -> bool:
        """The next token belongs to the reasoning."""
        ...

    def push(self, text: str) -> list[Output]:
        """Take in text of ordinary tokens; what can be handed out now."""
        ...

    def push_marker(self, marker: str) -> list[Output]:
        """Take in the single id of `<think>` or `</think>`."""
        ...

    def finish(self, end: End) -> list[Output]:
        """No more text comes; everything held back goes where it belongs.  Sets `end` if it is open."""
        ...


class End(Enum):
    """Why the text ends, as the parser or the engine sees it."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
