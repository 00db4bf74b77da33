"""The history of a gate: an append-only file of operation events, one JSON object a line.

Kinds: `invoke` (about to ask), `ok` (answered), `fail` (definitely refused or broken), `info` (nobody knows,
or a remark of the harness). Every line is on disk before the next operation starts; a reader skips a last
line that a kill -9 tore. Knows nothing of what is asked or how it is judged.
"""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from gates.errors import CheckError
from gates.harness.shape import parsed_whole

EventKind = Literal["invoke", "ok", "fail", "info"]
KINDS: tuple[EventKind, ...] = ("invoke", "ok", "fail", "info")
ITEM = "item"  # the remark that a graded item becomes
RESERVED = frozenset({"op", "t_s", "kind", "client", "what"})


@dataclass(frozen=True, slots=True)
class Event:
    """One line: `op` joins the events of one operation; `t_s` is seconds since the history was opened."""

    op: int
    t_s: float
    kind: EventKind
    client: int
    what: str
    fields: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        """A field by name, or the default."""
        return self.fields.get(name, default)


@dataclass(frozen=True, slots=True)
class Operation:
    """An invoke and what became of it; `end` is None when the record stops before an answer."""

    invoke: Event
    end: Event | None

    @property
    def outcome(self) -> EventKind:
        """`ok`, `fail` or `info`; an operation without an end is `info`: nobody knows what happened to it."""
        return self.end.kind if self.end else "info"

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the end, else of the invoke, else the default."""
        if self.end and name in self.end.fields:
            return self.end.fields[name]
        return self.invoke.fields.get(name, default)


class History:
    """Writes one gate's history; safe for several client threads.

    `before` are the events that the file holds already: they are gone on from, in numbers and in time, and a
    line that a kill tore is cut off.
    """

    def __init__(
        self, path: Path, *, before: Sequence[Event] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._clock = clock
        self._start = clock() - (before[-1].t_s if before else 0.0)
        self._next = 1 + max((event.op for event in before), default=-1)
        self._lock = threading.Lock()
        new = 0 if before else os.O_EXCL
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | new | os.O_APPEND, 0o644)
        if before:
            os.ftruncate(self._file, path.read_bytes().rfind(b"\n") + 1)

    def invoke(self, what: str, *, client: int = 0, **fields: Any) -> int:
        """Record that an operation is about to be asked; returns its number for the event that ends it."""
        with self._lock:
            op = self._next
            self._next += 1
            self._write(op, "invoke", client, what, fields)
        return op

    def ok(self, op: int, what: str, *, client: int = 0, **fields: Any) -> None:
        """Record that the operation was answered."""
        self._end(op, "ok", client, what, fields)

    def fail(self, op: int, what: str, *, client: int = 0, **fields: Any) -> None:
        """Record that the operation definitely did not succeed."""
        self._end(op, "fail", client, what, fields)

    def unknown(self, op: int, what: str, *, client: int = 0, **fields: Any) -> None:
        """Record that nobody knows what became of the operation: deadline passed, connection lost."""
        self._end(op, "info", client, what, fields)

    def note(self, what: str, **fields: Any) -> None:
        """Record a remark of the harness that belongs to no operation (`op` -1)."""
        self._end(-1, "info", -1, what, fields)

    def close(self) -> None:
        """Close the file; further writes, also of a thread that is left behind, fail."""
        with self._lock:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, op: int, kind: EventKind, client: int, what: str, fields: Mapping[str, Any]) -> None:
        with self._lock:
            self._write(op, kind, client, what, fields)

    def _write(self, op: int, kind: EventKind, client: int, what: str, fields: Mapping[str, Any]) -> None:
        clash = RESERVED & fields.keys()
        if clash:
            raise ValueError(f"fields {sorted(clash)} are reserved in a history line")
        t_s = round(self._clock() - self._start, 6)
        line = {"op": op, "t_s": t_s, "kind": kind, "client": client, "what": what, **fields}
        data = (
            json.dumps(line, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"
        )
        written = os.write(self._file, data)
        if written != len(data):
            # A later line, when there is room again, must not stand behind half of this one.
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, "a line was cut: is the disk full?", str(self.path))
        os.fsync(self._file)


def read(path: Path) -> list[Event]:
    """All whole events of a history; a torn last line is left out, any other bad line is a CheckError."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # what follows the last line break: empty, or a line that was never finished
    return [_parsed(path, number, line) for number, line in enumerate(lines, start=1)]


def items(path: Path) -> list[Event]:
    """The graded items of a gate as remarks of kind `ITEM`; empty without the file.

    A torn last line is left out; a line that is no object is a CheckError.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    lines.pop()
    return [_item(path, number, line) for number, line in enumerate(lines, start=1)]


def operations(events: Sequence[Event], what: str | None = None) -> list[Operation]:
    """Invokes joined with their ends, in order of asking; only those of one `what` if it is given."""
    ends = {event.op: event for event in events if event.kind != "invoke" and event.op >= 0}
    asked = (event for event in events if event.kind == "invoke" and what in (None, event.what))
    return [Operation(event, ends.get(event.op)) for event in asked]


def notes(events: Sequence[Event], what: str) -> Iterator[Event]:
    """Remarks of the harness of one kind, in order."""
    return (event for event in events if event.op < 0 and event.what == what)


def _item(path: Path, number: int, line: bytes) -> Event:
    try:
        fields = json.loads(line, parse_constant=_refuse_constant, parse_int=parsed_whole)
    except (ValueError, RecursionError) as error:
        raise CheckError(f"{path.name}, line {number}: not an item ({error})") from error
    if not isinstance(fields, dict):
        raise CheckError(f"{path.name}, line {number}: not an item (found {type(fields).__name__})")
    return Event(op=-1, t_s=0.0, kind="info", client=-1, what=ITEM, fields=fields)


def _parsed(path: Path, number: int, line: bytes) -> Event:
    try:
        raw = json.loads(line, parse_constant=_refuse_constant, parse_int=parsed_whole)
        kind = raw.pop("kind")
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
        head = {name: raw.pop(name) for name in ("op", "t_s", "client", "what")}
        if not math.isfinite(float(head["t_s"])):
            raise ValueError(f"t_s is {head['t_s']}")
        return Event(
            op=int(head["op"]),
            t_s=float(head["t_s"]),
            kind=cast(EventKind, kind),
            client=int(head["client"]),
            what=str(head["what"]),
            fields=raw,
        )
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise CheckError(f"{path.name}, line {number}: not a history event ({error})") from error


def _refuse_constant(name: str) -> object:
    """The writer never writes these."""
    raise ValueError(f"{name} is not JSON")
