"""Parses a raw continuation: all text is content, only stop strings end it.

Knows nothing of chat, thinking or tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.chat.pieces import BlockResult, End, Output, Piece
from engine.chat.request import ToolCall
from engine.chat.stops import StopFilter


@dataclass(slots=True)
class PlainParser:
    """One continuation; a marker that the model writes is its text."""

    stops: tuple[str, ...] = ()
    end: End | None = None
    stopped_by: str | None = None
    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    spoiled: bool = False
    tool_result: BlockResult | None = None
    block: str | None = None
    in_reasoning: bool = False
    _filter: StopFilter = field(init=False)

    def __post_init__(self) -> None:
        self._filter = StopFilter(self.stops)

    def push(self, text: str) -> list[Output]:
        """Take in text; what can be handed out now."""
        if self.end is not None:
            return []
        text = self._filter.push(text)
        if self._filter.hit is not None:
            self.stopped_by, self.end = self._filter.hit, End.STOP
        return self._say(text)

    def push_marker(self, marker: str) -> list[Output]:
        """A marker is text like any other."""
        return self.push(marker)

    def finish(self, end: End) -> list[Output]:
        """No more text comes; what is held back is content.  Sets `end` if it is open."""
        if self.end is not None:
            return []
        self.end = end
        return self._say(self._filter.flush())

    def _say(self, text: str) -> list[Output]:
        self.content += text
        return [Piece("content", text)] if text else []
