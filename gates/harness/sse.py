"""Server-sent events in: bytes pushed in any pieces become whole events.

The parser follows the event-stream format (WHATWG HTML, 9.2): fields `data`, `event`, `id`, comments, and
lines ended by LF, CR or CRLF. It knows nothing of JSON, and one word of a vendor's: see `_take`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its data lines joined by line breaks, and its name (`message` if none was given)."""

    data: str
    name: str = "message"


@dataclass(slots=True)
class EventParser:
    """Feed it bytes with `push`; any split of the same bytes gives the same events."""

    _line: bytearray = field(default_factory=bytearray)
    _after_cr: bool = False
    _first: bool = True
    _data: list[str] = field(default_factory=list)
    _name: str = ""
    comments: int = 0

    def push(self, chunk: bytes) -> list[ServerEvent]:
        """The events that this chunk completes, in order."""
        events: list[ServerEvent] = []
        for byte in chunk:
            if byte == 0x0A and self._after_cr:  # the LF of a CRLF whose CR ended the line already
                self._after_cr = False
                continue
            self._after_cr = byte == 0x0D
            if byte in (0x0A, 0x0D):
                self._end_line(events)
            else:
                self._line.append(byte)
        return events

    @property
    def pending(self) -> bool:
        """Whether bytes of an unfinished event are held: true after a stream that was cut short."""
        return bool(self._line or self._data)

    def _end_line(self, events: list[ServerEvent]) -> None:
        line = self._line.decode("utf-8", "replace")
        self._line.clear()
        if self._first:
            line = line.removeprefix("\ufeff")
            self._first = False
        if not line:
            self._dispatch(events)
        elif line.startswith(":"):
            self.comments += 1
        else:
            name, _, value = line.partition(":")
            self._take(name, value.removeprefix(" "))

    def _take(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "error":  # llama.cpp until September 2025 (its pull request 16109): data of an error
            self._name = name
            self._data.append(value)
        elif name == "event":
            self._name = value

    def _dispatch(self, events: list[ServerEvent]) -> None:
        if self._data:
            events.append(ServerEvent("\n".join(self._data), self._name or "message"))
        self._data.clear()
        self._name = ""
