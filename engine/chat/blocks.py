"""Follows a tool block while the model writes it: is the next token protocol syntax or a parameter's payload.

Owns that question only; the parser (`output`) owns what a client sees.  Tolerates the same spellings of tags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from engine.chat.calls import END, START
from engine.chat.markers import DSML

_BAR = f"(?:{DSML}|DSML｜|)"
_OPENING = re.compile(f"{START.pattern}|<{DSML}invoke")
_PARAMETER = re.compile(rf"<({_BAR})parameter((?:\s+\w+=\"[^\"]*\")*)\s*>")
_JSON_VALUE = re.compile(r"\bstring=\"false\"")
_BEGUN = re.compile(rf"<{DSML}[a-z_]*\Z")  # outside a block, only a tag begins so
_ENDING = re.compile(rf"</{DSML}[a-z]*\Z")  # inside a value, only its closing tag begins so
_LONGEST_TAG = 80  # characters; of text outside a block no more has to be remembered


class _Place(Enum):
    OUTSIDE = "outside"
    TAGS = "tags"
    TEXT = "text"
    JSON = "json"


@dataclass(slots=True)
class BlockTracker:
    """One answer.  Push decoded text in order, in any pieces; ask `syntax` and `open` between two tokens."""

    _place: _Place = _Place.OUTSIDE
    _held: str = ""
    _closing: str = ""
    _quoted: bool = False  # inside a string of a JSON value
    _escaped: bool = False

    @property
    def open(self) -> bool:
        """A block has begun and has not ended."""
        return self._place is not _Place.OUTSIDE

    @property
    def syntax(self) -> bool:
        """What comes next is a tag, an attribute or JSON punctuation: not the payload of the call."""
        if self._place is _Place.OUTSIDE:
            return _BEGUN.search(self._held) is not None
        if self._place is _Place.TAGS:
            return True
        return (self._place is _Place.JSON and not self._quoted) or _ENDING.search(self._held) is not None

    def push(self, text: str) -> None:
        """Take in text that became complete."""
        for character in text:
            self._held += character
            if self._place is _Place.JSON:
                self._scan(character)
            if character == ">" or (self._place is _Place.OUTSIDE and character == "e"):
                self._turn()
        if self._place is _Place.OUTSIDE:
            self._held = self._held[-_LONGEST_TAG:]

    def _turn(self) -> None:
        """Go where the tag that just ended leads."""
        if self._place is _Place.OUTSIDE:
            if _OPENING.search(self._held):
                self._enter(_Place.TAGS)
        elif self._place is _Place.TAGS:
            opening = _PARAMETER.search(self._held)
            if END.search(self._held):
                self._enter(_Place.OUTSIDE)
            elif opening:
                self._closing = f"</{opening[1]}parameter>"
                self._quoted = self._escaped = False
                self._enter(_Place.JSON if _JSON_VALUE.search(opening[2]) else _Place.TEXT)
        elif self._held.endswith(self._closing):
            self._enter(_Place.TAGS)

    def _enter(self, place: _Place) -> None:
        self._place, self._held = place, ""

    def _scan(self, character: str) -> None:
        """Keep track of strings in a JSON value."""
        if self._escaped:
            self._escaped = False
        elif self._quoted and character == "\\":
            self._escaped = True
        elif character == '"':
            self._quoted = not self._quoted
