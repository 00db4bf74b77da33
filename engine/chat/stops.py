"""Stop strings: hands text out until one of them is complete, and holds back what may begin one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StopFilter:
    """Text goes in and comes out again up to the first stop string, which `hit` then names."""

    stops: tuple[str, ...]
    hit: str | None = None
    _held: str = ""

    def __post_init__(self) -> None:
        self.stops = tuple(stop for stop in self.stops if stop)

    def push(self, text: str) -> str:
        """Take in text; what can be handed out now.  Nothing comes out after a hit."""
        if self.hit is not None:
            return ""
        if not self.stops:
            return text
        self._held += text
        hits = [(at + len(stop), at, stop) for stop in self.stops if (at := self._held.find(stop)) >= 0]
        if hits:
            _, cut, self.hit = min(hits)  # the first to be complete: what a stream sees first
        else:
            cut = max(0, len(self._held) - max(map(len, self.stops)) + 1)
        text, self._held = self._held[:cut], "" if self.hit is not None else self._held[cut:]
        return text

    def flush(self) -> str:
        """Everything still held: no stop string can begin in it any more."""
        text, self._held = self._held, ""
        return text
