"""Remembers tool blocks as the model wrote them, so that history renders to the very tokens it came from.

Clients send calls back as JSON, whose rendering may differ from what was sampled: blanks, order, odd tags.
Knows nothing of requests; a block is found only by the ids of its calls, which nobody can guess.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from engine.chat.dsml import parse_arguments
from engine.chat.request import ToolCall

MAX_CALLS = 100_000
MAX_CHARACTERS = 64 * 2**20


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    calls: tuple[ToolCall, ...]


@dataclass(slots=True)
class Replay:
    """Blocks by the ids of their calls, within two limits; what was not used for longest goes first."""

    max_calls: int = MAX_CALLS
    max_characters: int = MAX_CHARACTERS
    _blocks: OrderedDict[str, _Block] = field(default_factory=OrderedDict)  # by the id of the first call
    _calls: int = 0
    _characters: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        return self._calls

    def remember(self, text: str, calls: Sequence[ToolCall]) -> None:
        """Keep the text of a block; calls without an id cannot be found again and are not kept."""
        block = _Block(text, tuple(calls))
        if not calls or any(call.id is None for call in calls):
            return
        with self._lock:
            self._blocks[calls[0].id or ""] = block
            self._calls += len(calls)
            self._characters += len(text)
            while self._calls > self.max_calls or self._characters > self.max_characters:
                _, old = self._blocks.popitem(last=False)
                self._calls -= len(old.calls)
                self._characters -= len(old.text)

    def find(self, calls: Sequence[ToolCall]) -> str | None:
        """The text of the block of just these calls, if their names and arguments are still the same."""
        key = calls[0].id if calls else None
        with self._lock:
            block = self._blocks.get(key or "")
            if block is not None:
                self._blocks.move_to_end(key or "")
        if block is None or len(block.calls) != len(calls):
            return None
        same = all(_same(mine, theirs) for mine, theirs in zip(block.calls, calls, strict=True))
        return block.text if same else None


def _same(mine: ToolCall, theirs: ToolCall) -> bool:
    if (mine.id, mine.name) != (theirs.id, theirs.name):
        return False
    return mine.arguments == theirs.arguments or (
        parse_arguments(mine.arguments) == parse_arguments(theirs.arguments) is not None
    )
