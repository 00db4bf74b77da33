"""The neutral form of a chat request: what every dialect is parsed into and what the template renders.

Knows nothing of JSON bodies, HTTP or tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Effort(Enum):
    """How hard the model is asked to think; the template turns it into a prefix."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of an assistant turn; `arguments` is JSON text as the client sent it, valid or not."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UserText:
    """Text of one user message."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one tool call returned."""

    call_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class UserTurn:
    """Consecutive user and tool messages: one turn of blocks."""

    blocks: tuple[UserText | ToolResult, ...]


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """What the model said, thought and called; empty parts are empty strings."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()


Turn = UserTurn | AssistantTurn


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation ready to be rendered.

    `tools` holds one JSON text for each active tool, in the client's order; `response_schema` is JSON text.
    """

    turns: tuple[Turn, ...]
    system: str = ""
    tools: tuple[str, ...] = ()
    thinking: bool = True
    effort: Effort = Effort.LOW
    response_schema: str | None = None

    @property
    def keeps_reasoning(self) -> bool:
        """Old reasoning stays in the prompt: tools are active or were used before."""
        return bool(self.tools) or any(map(_uses_tools, self.turns))


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """Text, or ids as they are, to be continued without any chat format.

    `opened` puts the mark that begins every sequence before a text; ids are taken verbatim.
    """

    text: str = ""
    ids: tuple[int, ...] | None = None
    opened: bool = True


Prompt = ChatRequest | RawPrompt


def _uses_tools(turn: Turn) -> bool:
    if isinstance(turn, AssistantTurn):
        return bool(turn.calls)
    return any(isinstance(block, ToolResult) for block in turn.blocks)
