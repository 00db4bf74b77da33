"""What a dialect is: it reads a body into a neutral request and writes the answer, whole or as a stream.

Knows no dialect in particular.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.core import SamplingParams
from engine.errors import EngineError
from engine.server.ask import Ask
from engine.server.generation import Chunk, Summary


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the operator set for requests that do not say."""

    sampling: SamplingParams
    thinking: bool = True


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every part of one answer repeats; `key` is unguessable, `created` in Unix seconds."""

    key: str
    created: int
    model: str
    fingerprint: str
    prompt_tokens: int


class Writer(Protocol):
    """Writes one answer.  `whole` stands alone; a stream calls the others in the order they stand here.

    `index` counts the choices of the answer; most dialects know only one.
    All frames are complete server-sent events.
    """

    def whole(self, summaries: Sequence[Summary]) -> dict[str, Any]:
        """The whole answer at once."""
        ...

    def accepted(self) -> list[bytes]:
        """The request is taken and may have to wait."""
        ...

    def admitted(self, cached_tokens: int) -> list[bytes]:
        """It left the queue; so many tokens of its prompt need no computing."""
        ...

    def opened(self, index: int) -> list[bytes]:
        """The first token of a choice is there."""
        ...

    def chunk(self, index: int, chunk: Chunk) -> list[bytes]:
        """More of a choice became visible."""
        ...

    def closed(self, index: int, summary: Summary) -> list[bytes]:
        """A choice is complete."""
        ...

    def finished(self, summaries: Sequence[Summary]) -> list[bytes]:
        """All of them are."""
        ...

    def failed(self, error: EngineError) -> list[bytes]:
        """Instead of `finished`: something broke after the first byte."""
        ...

    def silent(self) -> bytes:
        """What keeps the connection alive after a silence; may come between any two of the others."""
        ...


class Dialect(Protocol):
    """One API surface; `prompt_member` is where its body holds the prompt."""

    @property
    def surface(self) -> str:
        """The name of this surface in metrics and logs."""
        ...

    @property
    def prompt_member(self) -> str:
        """What errors about the prompt's length name."""
        ...

    def read(self, body: Mapping[str, object], defaults: Defaults) -> Ask:
        """Check a body; raises RequestError naming the member that is wrong."""
        ...

    def writer(self, body: Mapping[str, object], ask: Ask, envelope: Envelope) -> Writer:
        """Who writes the answer to a body that was read."""
        ...
