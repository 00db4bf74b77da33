"""Drives one answer: submits to the engine, decodes, parses, counts.

Joins the engine's thread with the server's event loop.  Knows nothing of dialects or of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from engine.chat.markers import END_THINK, THINK
from engine.chat.output import End, Output, OutputParser
from engine.core import Event, Finished, FinishReason, Generated, Request, Started, Timings
from engine.errors import EngineError
from engine.server.service import Service
from engine.tokenizer import TokenStream


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became visible at once, and the ids whose text is complete with it."""

    pieces: tuple[Output, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of an answer and its counts."""

    end: End
    completion_tokens: int
    reasoning_tokens: int
    timings: Timings


@dataclass(slots=True)
class Generation:
    """One answer in the making.

    `start` admits it or raises; iterate `chunks` to its end, then read `summary` and `last_ids`.
    Call `cancel` when nobody listens any more.
    """

    service: Service
    request: Request
    parser: OutputParser
    summary: Summary | None = None
    token_ids: list[int] = field(default_factory=list)
    _events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    _waiting_ids: list[int] = field(default_factory=list)
    _completion: int = 0
    _reasoning: int = 0

    def start(self) -> None:
        """Submit; raises CapacityError, ContextLengthError or NotReadyError at once."""
        loop = asyncio.get_running_loop()
        self.service.engine.submit(self.request, lambda event: _call_soon(loop, self._events, event))

    def cancel(self) -> None:
        """Stop working on this answer; harmless when it is over."""
        self.service.engine.cancel(self.request.id)

    @property
    def last_ids(self) -> tuple[int, ...]:
        """Ids that no chunk has carried yet."""
        return tuple(self._waiting_ids)

    async def chunks(self) -> AsyncIterator[Chunk]:
        """First an empty chunk when the first token is there, then everything visible, in order."""
        decoder = self.service.tokenizer.stream()
        opened = False
        while True:
            event = await self._events.get()
            if isinstance(event, Started):
                continue
            if not opened:
                opened = True
                yield Chunk((), ())
            if isinstance(event, Finished):
                for chunk in self._finish(event):
                    yield chunk
                return
            if self.parser.end is None:
                pieces = self._take(event, decoder)
                if self.parser.end is not None:
                    self.cancel()  # the parser knows the end before the engine does
                if pieces:
                    yield self._chunk(pieces)

    def _take(self, event: Generated, decoder: TokenStream) -> list[Output]:
        """Feed one token to the parser and count it."""
        token, markers = event.token, self.service.markers
        self.token_ids.append(token)
        self._waiting_ids.append(token)
        self._completion += 1
        was_reasoning = self.parser.in_reasoning
        names = {markers.think: THINK, markers.end_think: END_THINK}
        if token in names:
            pieces = self.parser.push(decoder.flush()) + self.parser.push_marker(names[token])
        else:
            pieces = self.parser.push(decoder.push(token))
        if was_reasoning and self.parser.in_reasoning:
            self._reasoning += 1
        return pieces

    def _finish(self, event: Finished) -> list[Chunk]:
        if event.reason is FinishReason.FAILED:
            raise EngineError(event.message or "the engine failed on this request")
        ends = {FinishReason.LENGTH: End.LENGTH}
        pieces = self.parser.finish(ends.get(event.reason, End.STOP))
        end = self.parser.end or End.STOP
        self.summary = Summary(end, self._completion, self._reasoning, event.timings)
        return [self._chunk(pieces)] if pieces else []

    def _chunk(self, pieces: list[Output]) -> Chunk:
        ids, self._waiting_ids = tuple(self._waiting_ids), []
        return Chunk(tuple(pieces), ids)


def _call_soon(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    loop.call_soon_threadsafe(events.put_nowait, event)
