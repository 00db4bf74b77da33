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

from engine.chat.block_reader import BlockReader, Closed, Grown, Opened, Step
from engine.chat.calls import START, required
from engine.chat.markers import DSML, END_THINK, THINK
from engine.chat.pieces import BlockResult, CallArguments, CallStart, End, Output, Piece, call_id
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
    spoiled: bool = False
    tool_result: BlockResult | None = None
    block: str | None = None
    _state: _State = field(init=False)
    _stops: StopFilter = field(init=False)
    _held: str = ""
    _reader: BlockReader = field(default_factory=lambda: BlockReader({}))
    _lazy: bool = False  # the block has no start tag, so that a call in it must be complete to count
    _refused: bool = False
    _pending: list[Step] = field(default_factory=list)
    _open_id: str | None = None  # of the call that clients have seen open
    _taken: int = 0  # of the block's text: what the calls so far cover
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
        if self._state is _State.REASONING:
            pieces = self._finish_reasoning(end)
        elif self._state is _State.TOOL:
            pieces = self._take(self._reader.push(self._held)) + self._end_block(end)
        else:
            pieces = self._release(self._held)
        self._held = ""
        self.end = self.end or end
        return pieces + self._flush_stops()

    def _drain(self) -> list[Output]:
        pieces: list[Output] = []
        while self.end is None and (more := self._drain_state()) is not None:
            pieces += more
        return pieces

    def _drain_state(self) -> list[Output] | None:
        """Hand out what the present state can; None when nothing changes any more."""
        if self._state is _State.TEXT:
            return self._drain_text()
        return self._drain_reasoning() if self._state is _State.REASONING else self._drain_tool()

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
        if "<" not in self._held:  # nearly always: looking for each tag would take longer than all the rest
            return self._hand_out(len(self._held.rstrip() if self.tools else self._held))
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
            self._enter_block(self._held)
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
        """Hand out what the block has said so far; its end is the end of the answer."""
        if not self._held:
            return None
        text, self._held = self._held, ""
        pieces = self._take(self._reader.push(text))
        if self._reader.closed and self.end is None:
            pieces += self._end_block(End.TOOL_CALLS)
        return pieces

    def _take(self, steps: Sequence[Step]) -> list[Output]:
        """Calls as they open, grow and close.  One without a start tag counts only once it is complete."""
        pieces: list[Output] = []
        for step in steps:
            if self.end is not None or self._refused:
                break
            self._pending.append(step)
            if self._lazy and not isinstance(step, Closed):
                continue
            if self._lazy and isinstance(step, Closed) and not self._is_plausible(step):
                self._refused = True
                break
            for kept in self._pending:
                pieces += self._show(kept)
            self._pending.clear()
        return pieces

    def _show(self, step: Step) -> list[Output]:
        index = len(self.calls)
        match step:
            case Opened():
                self._open_id = self.new_id()
                return [CallStart(index, self._open_id, step.name)]
            case Grown():
                return [CallArguments(index, step.text)]
            case Closed():
                self.calls.append(ToolCall(self._open_id, step.name, step.arguments))
                self._open_id, self._taken = None, self._reader.rest
                if not self.parallel:
                    self.end = End.TOOL_CALLS
                return []

    def _is_plausible(self, call: Closed) -> bool:
        tool = self._reader.tools.get(call.name)
        return tool is not None and required(tool) <= call.keys

    def _end_block(self, end: End) -> list[Output]:
        """Complete calls count; a damaged rest is content, as is a block without calls.

        A call that a stream has seen open and that will never close cannot be taken back: its text is content
        only for those who read the whole answer, and `spoiled` tells the others.
        """
        pieces = self._take(self._reader.finish())
        if self.end is not None:
            return pieces
        text = self._reader.text
        rest = text[self._taken :].lstrip() if self.calls else text
        if self._reader.rest == len(text) and not self._refused and self.calls:
            rest = ""  # nothing but the end tag is left
        self.end = End.TOOL_CALLS if self.calls and end is not End.LENGTH else end
        if end is End.TOOL_CALLS and not self.calls:
            self.end = End.STOP
        self._judge_block(rest)
        if self._open_id is None:
            return pieces + self._say(rest)
        self.content += rest
        self.spoiled = end is not End.LENGTH
        return pieces

    def _judge_block(self, rest: str) -> None:
        """Note how the block read, and keep it for replay when it is whole."""
        if not self.calls or rest.strip():
            self.tool_result = "failed"
        else:
            self.tool_result = "repaired" if self._reader.repaired or not self._reader.closed else "ok"
            self.block = self._reader.text if self._reader.closed else None

    def _finish_reasoning(self, end: End) -> list[Output]:
        if self.tools and end is End.STOP and self._is_call(self._held):
            self._enter_block(self._held)
            return self._take(self._reader.push(self._held)) + self._end_block(end)
        pieces = self._reason(self._held)
        if end is End.STOP and not self.content:
            pieces += self._say(self.reasoning)  # the client gets an answer, even a misplaced one
        return pieces

    def _enter_block(self, block: str) -> None:
        self._reader = BlockReader({tool.name: tool for tool in self.tools})
        self._lazy = START.match(block.lstrip()) is None
        self._state = _State.TOOL

    def _is_call(self, block: str) -> bool:
        """A complete block of declared tools with nothing behind it."""
        reader = BlockReader({tool.name: tool for tool in self.tools})
        calls = [step for step in (*reader.push(block), *reader.finish()) if isinstance(step, Closed)]
        known = all(call.name in reader.tools for call in calls)
        return bool(calls) and known and not reader.open_call and not reader.text[reader.rest :].strip()

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
    """Where the longest suffix begins that is a proper prefix of one of the tags; len(text) for none.

    All tags begin with the same character.
    """
    start = text.find(tags[0][0], max(0, len(text) - max(map(len, tags)) + 1))
    while start >= 0:
        suffix = text[start:]
        if any(tag.startswith(suffix) for tag in tags):
            return start
        start = text.find(tags[0][0], start + 1)
    return len(text)
