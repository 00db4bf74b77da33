"""Parses what the model writes, token by token, into reasoning, content and tool calls.

Owns the hold-back: text is handed out only when no continuation could turn it into a tag, a stop string or
trailing blanks before a tool block.  Concatenated pieces do not depend on how the output is cut into tokens.
Knows nothing of HTTP; reads decoded text, and ids only for the two thinking markers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.chat.calls import END, START, parse_block
from engine.chat.markers import DSML, END_THINK, THINK
from engine.chat.pieces import CallArguments, CallStart, End, Output, Piece, call_id
from engine.chat.request import ToolCall
from engine.chat.stops import StopFilter
from engine.chat.tools import Tool

_STARTS = (f"<{DSML}tool_calls>", "<DSML｜tool_calls>", "<tool_calls>")
_MARKUP = f"<{DSML}"  # with no tools active, content ends before it
_INVOKE = f"<{DSML}invoke"  # a block whose start tag was left out
_BLOCK = re.compile(f"{START.pattern}|{_INVOKE}")
_ORPHANS = tuple(f"</{DSML}{name}>" for name in ("tool_calls", "invoke", "parameter"))
_ORPHAN = re.compile("|".join(_ORPHANS))


class _State(Enum):
    REASONING = "reasoning"
    TEXT = "text"
    TOOL = "tool"


@dataclass(slots=True)
class OutputParser:
    """Parses one chat answer; `new_id` names its tool calls."""

    thinking: bool
    tools: Sequence[Tool] = ()
    stops: Sequence[str] = ()
    parallel: bool = True
    new_id: Callable[[], str] = call_id
    end: End | None = None
    stopped_by: str | None = None
    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    _state: _State = field(init=False)
    _stops: StopFilter = field(init=False)
    _held: str = ""
    _fresh: bool = True  # nothing of the reasoning was seen yet

    def __post_init__(self) -> None:
        self._state = _State.REASONING if self.thinking else _State.TEXT
        self._stops = StopFilter(tuple(self.stops))

    @property
    def in_reasoning(self) -> bool:
        """The next token belongs to the reasoning."""
        return self._state is _State.REASONING

    def push(self, text: str) -> list[Output]:
        """Take in text of ordinary tokens; what can be handed out now."""
        if self.end is not None or not text:
            return []
        self._held += text
        return self._drain()

    def push_marker(self, marker: str) -> list[Output]:
        """Take in the single id of `<think>` or `</think>`; the same characters typed are plain text."""
        if self.end is not None:
            return []
        if self._state is not _State.TEXT:
            return self.push(marker)
        pieces = self._release(self._held)
        self._held = ""
        if marker == THINK and self.end is None:
            pieces += self._flush_stops()
            self._state = _State.REASONING
            self._fresh = False
        return pieces

    def finish(self, end: End) -> list[Output]:
        """No more text comes; everything held back goes where it belongs.  Sets `end` if it is open."""
        if self.end is not None:
            return []
        self.end = end
        if self._state is _State.REASONING:
            pieces = self._finish_reasoning(end)
        elif self._state is _State.TOOL:
            pieces = self._finish_block(self._held, end)
        else:
            pieces = self._release(self._held)
        self._held = ""
        return pieces + self._flush_stops()

    def _drain(self) -> list[Output]:
        pieces: list[Output] = []
        steps: dict[_State, Callable[[], list[Output] | None]] = {
            _State.REASONING: self._drain_reasoning,
            _State.TEXT: self._drain_text,
            _State.TOOL: self._drain_tool,
        }
        while self.end is None:
            more = steps[self._state]()
            if more is None:
                break
            pieces += more
        return pieces

    def _drain_reasoning(self) -> list[Output] | None:
        """Hand out reasoning up to a possible tag; None when nothing changes any more."""
        if self._fresh:
            if THINK.startswith(self._held) and self._held != THINK:
                return None
            self._held = self._held.removeprefix(THINK)
            self._fresh = False
        closing = self._held.find(END_THINK)
        if closing >= 0:
            text, self._held = self._held[:closing], self._held[closing + len(END_THINK) :]
            self._state = _State.TEXT
            return self._reason(text)
        held = _held_from(self._held, (END_THINK, *((*_STARTS, _INVOKE) if self.tools else ())))
        if self.tools and (start := _BLOCK.search(self._held)):
            held = min(held, start.start())  # a block in the reasoning may be all the answer there is
        text, self._held = self._held[:held], self._held[held:]
        return self._reason(text) or None

    def _drain_text(self) -> list[Output] | None:
        """Hand out content up to a possible tag; None when nothing changes any more."""
        orphan = _ORPHAN.search(self._held)
        opening = re.search(_BLOCK if self.tools else _MARKUP, self._held)
        if orphan and not (opening and opening.start() < orphan.start()):
            text, self._held = self._held[: orphan.start()], self._held[orphan.end() :]
            return self._release(text)
        if opening:
            return self._open_block(opening.start()) if self.tools else self._cut(opening.start())
        if not self.tools:
            return self._hand_out(_held_from(self._held, (_MARKUP, *_ORPHANS)))
        upto = _held_from(self._held, (*_STARTS, _INVOKE, *_ORPHANS))
        return self._hand_out(len(self._held[:upto].rstrip()))

    def _open_block(self, at: int) -> list[Output]:
        """Enter a tool block; blanks before it belong to it."""
        text = self._held[:at].rstrip()
        pieces = self._release(text)
        if self.end is None:
            pieces += self._flush_stops()
            self._held = self._held[len(text) :]
            self._state = _State.TOOL
        return pieces

    def _cut(self, at: int) -> list[Output]:
        """End the answer before markup that nobody asked for."""
        pieces = self._release(self._held[:at])
        if self.end is None:
            pieces += self._flush_stops()
            self.end = End.STOP
        return pieces

    def _hand_out(self, upto: int) -> list[Output] | None:
        text, self._held = self._held[:upto], self._held[upto:]
        return self._release(text) if text else None

    def _drain_tool(self) -> list[Output] | None:
        """Wait for the end of the block, then deliver all of its calls."""
        closing = END.search(self._held)
        if closing is None:
            return None
        block, self._held = self._held[: closing.end()], ""
        self.end = End.TOOL_CALLS
        return self._finish_block(block, End.TOOL_CALLS)

    def _finish_block(self, block: str, end: End) -> list[Output]:
        """Deliver the complete calls of a block; a damaged rest is content, as is a block without calls."""
        parsed = parse_block(block, self.tools)
        pieces: list[Output] = []
        for call in parsed.calls if self.parallel else parsed.calls[:1]:
            index, made = len(self.calls), ToolCall(self.new_id(), call.name, call.arguments)
            pieces += [CallStart(index, made.id or "", made.name), CallArguments(index, made.arguments)]
            self.calls.append(made)
        if self.calls and end is not End.LENGTH:
            self.end = End.TOOL_CALLS
        elif end is End.TOOL_CALLS:
            self.end = End.STOP
        rest = parsed.rest if parsed.calls else block
        return pieces + self._say(rest)

    def _finish_reasoning(self, end: End) -> list[Output]:
        if self.tools and end is End.STOP and self._is_call(self._held):
            return self._finish_block(self._held, end)
        pieces = self._reason(self._held)
        if end is End.STOP and not self.content:
            pieces += self._say(self.reasoning)  # the client gets an answer, even a misplaced one
        return pieces

    def _is_call(self, block: str) -> bool:
        """A complete block of declared tools with nothing behind it."""
        parsed = parse_block(block, self.tools)
        declared = {tool.name for tool in self.tools}
        known = all(call.name in declared for call in parsed.calls)
        return bool(parsed.calls) and known and not parsed.rest.strip()

    def _reason(self, text: str) -> list[Output]:
        self.reasoning += text
        return [Piece("reasoning", text)] if text else []

    def _say(self, text: str) -> list[Output]:
        self.content += text
        return [Piece("content", text)] if text else []

    def _release(self, text: str) -> list[Output]:
        """Content that is no tag: hand out what no stop string can begin in."""
        text = self._stops.push(text)
        if self._stops.hit is not None:
            self.stopped_by, self.end = self._stops.hit, End.STOP
        return self._say(text)

    def _flush_stops(self) -> list[Output]:
        return self._say(self._stops.flush())


def _held_from(text: str, tags: Sequence[str]) -> int:
    """Where the longest suffix begins that is a proper prefix of one of the tags; len(text) for none."""
    longest = max(map(len, tags)) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        suffix = text[start:]
        if any(tag.startswith(suffix) for tag in tags):
            return start
    return len(text)
