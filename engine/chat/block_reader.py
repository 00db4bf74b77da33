"""Reads a tool block while it is written: calls open, their arguments grow, they close.

Owns where a value ends and what may be handed out of it before that.
What comes out does not depend on how the text was cut, and is always a prefix of the JSON of the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.chat.calls import (
    BARS,
    END,
    GUARD,
    INVOKE,
    PARAMETER,
    START,
    OpeningTag,
    begins,
    closings,
    dump_key,
    is_raw,
    read_value,
    unwrap,
)
from engine.chat.dsml import PARAMETER_END, dump
from engine.chat.markers import DSML
from engine.chat.tools import Tool

_STARTS = tuple(f"<{bar}tool_calls>" for bar in BARS)
_ENDS, _INVOKE_ENDS, _PARAMETER_ENDS = closings("tool_calls"), closings("invoke"), closings("parameter")
_WRAPPERS = ("arguments", "input")


@dataclass(frozen=True, slots=True)
class Opened:
    """A call begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Grown:
    """More of the JSON of the open call's arguments."""

    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The open call is complete; `arguments` is the JSON text of an object."""

    name: str
    arguments: str
    keys: frozenset[str]


Step = Opened | Grown | Closed


class _Place(Enum):
    START = "start"
    BETWEEN = "between"  # before an invoke or the end
    INSIDE = "inside"  # before a parameter or the end of the invoke
    VALUE = "value"
    BROKEN = "broken"  # what stands here is no block
    DONE = "done"


@dataclass(slots=True)
class _Call:
    """The call that is being read."""

    name: str
    tool: Tool | None
    written: str = ""  # of its arguments
    keys: list[str] = field(default_factory=list)
    wrapper: tuple[str, object] | None = None  # a lone parameter that may only be a wrapper


@dataclass(slots=True)
class BlockReader:
    """One block.  Push text; `closed` when its end tag came; `rest` is where what is no call begins."""

    tools: Mapping[str, Tool]
    text: str = ""
    repaired: bool = False
    rest: int = 0
    _at: int = 0
    _place: _Place = _Place.START
    _call: _Call | None = None
    _tag: OpeningTag | None = None  # of the open parameter
    _sent: int = 0  # of a raw value: where what is not handed out yet begins
    _final: bool = False

    @property
    def closed(self) -> bool:
        """The end tag came."""
        return self._place is _Place.DONE

    @property
    def open_call(self) -> bool:
        """A call was opened and has not closed."""
        return self._call is not None

    def push(self, text: str) -> list[Step]:
        """Take in text; what it makes visible.  Nothing behind the end tag counts."""
        if not self.closed:
            self.text += text
        return self._advance()

    def finish(self) -> list[Step]:
        """No more text comes: a value may now end where it first looked like it."""
        self._final = True
        return self._advance()

    def _advance(self) -> list[Step]:
        steps: list[Step] = []
        moves = {
            _Place.START: self._start,
            _Place.BETWEEN: self._between,
            _Place.INSIDE: self._inside,
            _Place.VALUE: self._value,
            _Place.BROKEN: self._broken,
        }
        while self._place in moves:
            more = moves[self._place]()
            if more is None:
                break
            steps += more
        return steps

    def _skip_blanks(self) -> str:
        """The text from the next character that is none; the blanks before it mean nothing."""
        rest = self.text[self._at :]
        self._at += len(rest) - len(rest.lstrip())
        return self.text[self._at :]

    def _start(self) -> list[Step] | None:
        rest = self._skip_blanks()
        if found := START.match(rest):
            self._at += found.end()
            self.repaired |= DSML not in found[0]
        elif not rest or begins(rest, _STARTS):
            return None
        else:
            self.repaired = True
        self._place = _Place.BETWEEN
        return []

    def _between(self) -> list[Step] | None:
        rest = self._skip_blanks()
        if found := END.match(rest):
            self.repaired |= DSML not in found[0]
            self.rest = self._end(self._at + found.end())
            return []
        tag = INVOKE.read(self.text, self._at)
        name = tag.attributes.get("name") if tag else None
        if tag is None or not name:
            waits = not tag and (not rest or begins(rest, _ENDS) or INVOKE.may_come(rest))
            return self._wait_or_break(waits)
        self._call = _Call(name, self.tools.get(name))
        self._at, self._place = tag.stop, _Place.INSIDE
        self.repaired |= tag.bar != DSML
        return [Opened(name)]

    def _inside(self) -> list[Step] | None:
        rest = self._skip_blanks()
        assert self._call is not None
        ending = next((tag for tag in _INVOKE_ENDS if rest.startswith(tag)), None)
        if ending is not None:
            self._at += len(ending)
            self.rest = self._at
            self.repaired |= DSML not in ending
            self._place = _Place.BETWEEN
            return self._close(self._call)
        tag = PARAMETER.read(self.text, self._at)
        if tag is None or "name" not in tag.attributes:
            waits = not tag and (not rest or begins(rest, _INVOKE_ENDS) or PARAMETER.may_come(rest))
            return self._wait_or_break(waits)
        self._tag, self._at, self._sent = tag, tag.stop, tag.stop
        self._place = _Place.VALUE
        self.repaired |= tag.bar != DSML
        steps = self._unwrapped(self._call, lone=False)
        return steps + (self._key(self._call, tag.attributes["name"]) if self._streams() else [])

    def _value(self) -> list[Step] | None:
        assert self._call is not None
        assert self._tag is not None
        if self._may_nest() and not self._final:
            return self._nested()
        span = self._span()
        steps = self._grow(self._call, span.safe) if self._streams() else []
        if span.stop is None:
            return steps or None
        body, self._at = self.text[self._tag.stop : span.stop], span.after
        self.repaired |= not self.text.startswith(PARAMETER_END, span.stop)
        steps += self._finish_value(self._call, self._tag, body)
        self._place = _Place.INSIDE
        return steps

    def _broken(self) -> list[Step] | None:
        """Nothing that comes can be a call; only the end of the block is waited for."""
        if found := END.search(self.text, self._at):
            self._end(found.end())
            return []
        return None

    def _end(self, at: int) -> int:
        """The block ends at a place; what came behind it is not part of it."""
        self.text, self._at, self._place = self.text[:at], at, _Place.DONE
        return at

    def _wait_or_break(self, waits: bool) -> list[Step] | None:
        if waits:
            return None
        self._place = _Place.BROKEN
        return []

    # --- values ---

    def _types(self, key: str) -> tuple[str, ...]:
        assert self._call is not None
        return self._call.tool.types.get(key, ()) if self._call.tool else ()

    def _streams(self) -> bool:
        """The open value is text that may be handed out as it comes."""
        assert self._tag is not None
        assert self._call is not None
        key, kind = self._tag.attributes["name"], self._tag.attributes.get("string")
        types = self._types(key)
        certain = kind is not None and is_raw(kind, types) and (not types or "string" in types)
        return certain and not self._may_wrap(key)

    def _may_wrap(self, key: str) -> bool:
        assert self._call is not None
        call = self._call
        return key in _WRAPPERS and not call.keys and call.tool is not None and key not in call.tool.types

    def _span(self) -> _Span:
        """Where the open value ends, if that is known, and up to where it is certainly value."""
        assert self._tag is not None
        own = f"</{self._tag.bar}parameter>"
        first_foreign: _Span | None = None
        at = self._tag.stop
        while (found := _earliest(self.text, _PARAMETER_ENDS, at)) is not None:
            place, tag = found
            after = place + len(tag)
            verdict = True if tag == own else self._ends_here(after)
            if verdict:
                return _Span(place, after, place)
            first_foreign = first_foreign or _Span(place, after, place)
            if verdict is None:
                break
            at = after
        if first_foreign is not None:
            return first_foreign if self._final else _Span(None, 0, first_foreign.safe)
        held = _held_from(self.text, (*_PARAMETER_ENDS, GUARD), self._tag.stop)
        return _Span(None, 0, held)

    def _ends_here(self, after: int) -> bool | None:
        """A closing tag of another spelling ends a value only before a tag that can follow; None: wait."""
        assert self._tag is not None
        rest = self.text[after:].lstrip()
        bar = self._tag.bar
        own = (f"<{bar}parameter", f"</{bar}invoke>", f"<{bar}invoke", f"</{bar}tool_calls>")
        tags = (*own, *_INVOKE_ENDS)
        if any(rest.startswith(tag) for tag in tags):
            return True
        return None if not rest or begins(rest, tags) else False

    def _grow(self, call: _Call, upto: int) -> list[Step]:
        """Hand out a raw value up to a place."""
        piece = self.text[self._sent : upto].replace(GUARD, PARAMETER_END)
        self._sent = max(self._sent, upto)
        return self._write(call, dump(piece)[1:-1]) if piece else []

    def _finish_value(self, call: _Call, tag: OpeningTag, body: str) -> list[Step]:
        key, kind = tag.attributes["name"], tag.attributes.get("string")
        if self._streams():
            call.keys.append(key)
            return self._write(call, '"')
        found = read_value(body, kind, self._types(key))
        self.repaired |= found.repaired
        return self._put(call, key, found.value)

    def _put(self, call: _Call, key: str, value: object) -> list[Step]:
        if self._may_wrap(key):
            call.wrapper = (key, value)
            call.keys.append(key)
            return []
        steps = self._key(call, key, opens=False)
        call.keys.append(key)
        return steps + self._write(call, dump(value))

    def _may_nest(self) -> bool:
        """The value has no type and begins like a parameter of its own."""
        assert self._tag is not None
        if "string" in self._tag.attributes:
            return False
        rest = self.text[self._tag.stop :].lstrip()
        return PARAMETER.read(rest, 0) is not None or (rest != "" and PARAMETER.may_come(rest))

    def _nested(self) -> list[Step] | None:
        """The object of the parameters inside this one, once all have closed; None before that."""
        assert self._tag is not None
        assert self._call is not None
        found = _children(self.text, self._tag.stop)
        if found is None:
            return None
        children, self._at = found
        self.repaired = True
        self._place = _Place.INSIDE
        return self._put(self._call, self._tag.attributes["name"], children)

    # --- the JSON of the arguments ---

    def _key(self, call: _Call, key: str, *, opens: bool = True) -> list[Step]:
        before = ", " if call.written else "{"
        return self._write(call, before + dump_key(key) + ('"' if opens else ""))

    def _write(self, call: _Call, text: str) -> list[Step]:
        call.written += text
        return [Grown(text)]

    def _unwrapped(self, call: _Call, *, lone: bool) -> list[Step]:
        """What a parameter that may be a wrapper turned out to be."""
        if call.wrapper is None:
            return []
        (key, value), call.wrapper = call.wrapper, None
        inner = unwrap(key, value, call.tool) if lone else None
        if inner is None:
            return self._key(call, key, opens=False) + self._write(call, dump(value))
        self.repaired = True
        call.keys = list(inner)
        return self._write(call, dump(inner)[:-1])

    def _close(self, call: _Call) -> list[Step]:
        steps = self._unwrapped(call, lone=len(call.keys) == 1)
        steps += self._write(call, "}" if call.written else "{}")
        self._call = None
        return [*steps, Closed(call.name, call.written, frozenset(call.keys))]


@dataclass(frozen=True, slots=True)
class _Span:
    """A value up to `stop`, the text after its closing tag, and up to where it can be handed out."""

    stop: int | None
    after: int
    safe: int


def _earliest(text: str, tags: Sequence[str], at: int) -> tuple[int, str] | None:
    places = [(place, tag) for tag in tags if (place := text.find(tag, at)) >= 0]
    return min(places, default=None)


def _held_from(text: str, tags: Sequence[str], at: int) -> int:
    """Where the longest end begins that may still become one of the tags."""
    longest = max(map(len, tags)) - 1
    for start in range(max(at, len(text) - longest), len(text)):
        if any(tag.startswith(text[start:]) for tag in tags):
            return start
    return len(text)


def _children(text: str, at: int) -> tuple[dict[str, object], int] | None:
    """The parameters from a place on, and the place behind the closing tag of what holds them."""
    found: dict[str, object] = {}
    while True:
        rest = text[at:]
        at += len(rest) - len(rest.lstrip())
        ending = next((tag for tag in _PARAMETER_ENDS if text.startswith(tag, at)), None)
        if ending is not None:
            return found, at + len(ending)
        tag = PARAMETER.read(text, at)
        if tag is None or "name" not in tag.attributes:
            return None
        stop = text.find(f"</{tag.bar}parameter>", tag.stop)
        if stop < 0:
            return None
        found[tag.attributes["name"]] = read_value(
            text[tag.stop : stop], tag.attributes.get("string"), ()
        ).value
        at = stop + len(f"</{tag.bar}parameter>")
