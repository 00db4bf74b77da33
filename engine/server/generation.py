"""Drives one answer: submits to the engine, decodes, parses, counts.

Joins the engine's thread with the server's event loop.  Knows nothing of dialects or of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from engine.chat.pieces import End, Output, Parser
from engine.chat.request import ToolCall
from engine.chat.tokens import TokenReader
from engine.core import Event, Finished, FinishReason, Generated, Request, Started, Timings
from engine.errors import CapacityError, EngineError
from engine.server.service import Service

MAX_UNREAD = 65_536  # tokens that one client leaves unread: about 4 MiB


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request left the queue; so many tokens of its prompt need no computing."""

    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The first token is there, or the end without any."""


@dataclass(frozen=True, slots=True)
class Probability:
    """One token's bytes and natural-log probability, and those of the likeliest at its place."""

    text: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became visible at once, the ids whose text is complete with it, and their probabilities."""

    pieces: tuple[Output, ...]
    token_ids: tuple[int, ...]
    probabilities: tuple[Probability, ...] = ()


Moment = Admitted | Opened | Chunk


@dataclass(frozen=True, slots=True)
class Summary:
    """A complete answer and its counts; `last_ids` are those that no chunk has carried.

    `context_full`: it ended because the context did, not because of a budget that the client set.
    `spoiled`: a stream has shown a tool call that broke off and cannot be taken back.
    """

    end: End
    stopped_by: str | None
    reasoning: str
    content: str
    calls: tuple[ToolCall, ...]
    token_ids: tuple[int, ...]
    last_ids: tuple[int, ...]
    reasoning_tokens: int
    context_full: bool
    spoiled: bool
    timings: Timings
    probabilities: tuple[Probability, ...] = ()
    last_probabilities: tuple[Probability, ...] = ()

    @property
    def completion_tokens(self) -> int:
        """All sampled tokens but the one that ends the answer."""
        return len(self.token_ids)


@dataclass(slots=True)
class Generation:
    """One answer in the making.

    `start` admits it or raises; iterate `moments` to its end, then read `summary`.
    Call `cancel` when nobody listens any more.
    """

    service: Service
    request: Request
    parser: Parser
    fills_context: bool  # its budget is all the room there is
    summary: Summary | None = None
    _slow: bool = False
    _events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    _token_ids: list[int] = field(default_factory=list)
    _waiting_ids: list[int] = field(default_factory=list)
    _probabilities: list[Probability] = field(default_factory=list)
    _carried: int = 0  # probabilities that chunks have carried
    _reasoning: int = 0

    async def start(self) -> None:
        """Submit, and wait until it is let in; raises CapacityError, ContextLengthError or NotReadyError."""
        loop, mailbox = asyncio.get_running_loop(), self.service.mailbox
        let_in = self.service.engine.submit(self.request, lambda event: mailbox.post(loop, self._note, event))
        try:
            await asyncio.wrap_future(let_in)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Stop working on this answer; harmless when it is over."""
        self.service.engine.cancel(self.request.id)

    def _note(self, event: Event) -> None:
        """Keep an event until the client takes it; a client that takes none for too long is given up."""
        if self._events.qsize() > MAX_UNREAD and not self._slow:
            self._slow = True
            self.service.engine.metrics.add("shed_slow_reader")
            self.cancel()
        self._events.put_nowait(event)

    async def moments(self) -> AsyncIterator[Moment]:
        """That it was admitted, that the first token is there, then everything visible, in order."""
        reader = TokenReader(self.parser, self.service.markers, self.service.tokenizer.stream())
        opened = False
        while True:
            event = await self._events.get()
            if isinstance(event, Started):
                yield Admitted(event.cached_tokens)
                continue
            if not opened:
                opened = True
                yield Opened()
            if isinstance(event, Finished):
                for chunk in self._finish(event):
                    yield chunk
                return
            if self.parser.end is None:
                pieces = self._take(event, reader)
                if self.parser.end is not None:
                    self.service.engine.conclude(self.request.id)  # the parser knows the end first
                if pieces:
                    yield self._chunk(pieces)

    async def complete(self) -> Summary:
        """The whole answer, when nobody wants to see it grow."""
        async for _ in self.moments():
            pass
        assert self.summary is not None
        return self.summary

    def _take(self, event: Generated, reader: TokenReader) -> list[Output]:
        """Feed one token to the parser and count it."""
        token = event.token
        self._token_ids.append(token)
        self._waiting_ids.append(token)
        if event.logprob is not None:
            self._probabilities.append(self._probability(event, event.logprob))
        was_reasoning = self.parser.in_reasoning
        pieces = reader.push(token)
        if was_reasoning and self.parser.in_reasoning:
            self._reasoning += 1
        return pieces

    def _finish(self, event: Finished) -> list[Chunk]:
        if event.reason is FinishReason.FAILED:
            raise EngineError(event.message or "the engine failed on this request")
        if self._slow:
            raise CapacityError("the answer was given up because nobody read it for too long")
        pieces = self.parser.finish(End.LENGTH if event.reason is FinishReason.LENGTH else End.STOP)
        chunks = [self._chunk(pieces)] if pieces else []
        self._note_block()
        end = self.parser.end or End.STOP
        self.summary = Summary(
            end=end,
            stopped_by=self.parser.stopped_by,
            reasoning=self.parser.reasoning,
            content=self.parser.content,
            calls=tuple(self.parser.calls),
            token_ids=tuple(self._token_ids),
            last_ids=tuple(self._waiting_ids),
            reasoning_tokens=self._reasoning,
            spoiled=self.parser.spoiled,
            context_full=end is End.LENGTH and self.fills_context,
            timings=event.timings,
            probabilities=tuple(self._probabilities),
            last_probabilities=tuple(self._probabilities[self._carried :]),
        )
        return chunks

    def _probability(self, event: Generated, logprob: float) -> Probability:
        text = self.service.tokenizer.token_bytes
        return Probability(
            text(event.token), logprob, tuple((text(token), value) for token, value in event.top)
        )

    def _note_block(self) -> None:
        """Count how a tool block read, and remember it for when the client sends its calls back."""
        if self.parser.tool_result is not None:
            self.service.engine.metrics.add(f"tool_parse_{self.parser.tool_result}")
        if self.parser.block is not None:
            self.service.replay.remember(self.parser.block, self.parser.calls)

    def _chunk(self, pieces: list[Output]) -> Chunk:
        ids, self._waiting_ids = tuple(self._waiting_ids), []
        probabilities = tuple(self._probabilities[self._carried :])
        self._carried = len(self._probabilities)
        return Chunk(tuple(pieces), ids, probabilities)
