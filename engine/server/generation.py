"""Drives the choices of one answer: submits to the engine, decodes, parses, counts.

Joins the engine's thread with the server's event loop.  Knows nothing of dialects or of HTTP.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from engine.chat.pieces import End, Output, Parser, Piece
from engine.chat.request import ToolCall
from engine.chat.tokens import TokenReader
from engine.core import Event, Finished, FinishReason, Generated, Request, Started, Timings
from engine.errors import CapacityError, EngineError, NotReadyError
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
    """One token's bytes and natural-log probability, and those of the likeliest at its place.

    `reasoned`: it belongs to the reasoning or ends it.
    """

    text: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]
    reasoned: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became visible at once, the ids whose text is complete with it, and their probabilities."""

    pieces: tuple[Output, ...]
    token_ids: tuple[int, ...]
    probabilities: tuple[Probability, ...] = ()

    @property
    def of_content(self) -> tuple[Probability, ...]:
        """The probabilities of tokens that became content."""
        content = any(isinstance(piece, Piece) and piece.kind == "content" for piece in self.pieces)
        return tuple(token for token in self.probabilities if content and not token.reasoned)


@dataclass(frozen=True, slots=True)
class Summary:
    """A complete choice and its counts; `last_ids` are those that no chunk has carried.

    `context_full`: it ended because the context did, not because of a budget that the client set.
    `spoiled`: a stream has shown a tool call that broke off and cannot be taken back.
    `of_content`: the probabilities of the tokens that became content.
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
    of_content: tuple[Probability, ...] = ()

    @property
    def completion_tokens(self) -> int:
        """All sampled tokens but the one that ends the choice."""
        return len(self.token_ids)


Moment = Admitted | Opened | Chunk | Summary


@dataclass(slots=True)
class Choice:
    """One answer to a prompt, fed with the events of its request."""

    service: Service
    request: Request
    parser: Parser
    fills_context: bool  # its budget is all the room there is
    _reader: TokenReader = field(init=False)
    _opened: bool = False
    _token_ids: list[int] = field(default_factory=list)
    _waiting_ids: list[int] = field(default_factory=list)
    _probabilities: list[Probability] = field(default_factory=list)
    _of_content: list[Probability] = field(default_factory=list)
    _carried: int = 0  # probabilities that chunks have carried
    _reasoning: int = 0

    def __post_init__(self) -> None:
        self._reader = TokenReader(self.parser, self.service.markers, self.service.tokenizer.stream())

    def take(self, event: Event) -> list[Moment]:
        """That it was admitted, that the first token is there, what became visible, at last the summary.

        Raises EngineError when the request failed.
        """
        if isinstance(event, Started):
            return [Admitted(event.cached_tokens)]
        moments: list[Moment] = [] if self._opened else [Opened()]
        self._opened = True
        if isinstance(event, Finished):
            return moments + self._finish(event)
        if self.parser.end is None:
            pieces = self._read(event)
            if self.parser.end is not None:
                self.service.engine.conclude(self.request.id)  # the parser knows the end first
            if pieces:
                moments.append(self._chunk(pieces))
        return moments

    def _read(self, event: Generated) -> list[Output]:
        """Feed one token to the parser and count it."""
        token = event.token
        self._token_ids.append(token)
        self._waiting_ids.append(token)
        was_reasoning = self.parser.in_reasoning
        if event.logprob is not None:
            self._probabilities.append(self._probability(event, event.logprob, reasoned=was_reasoning))
        pieces = self._reader.push(token)
        if was_reasoning and self.parser.in_reasoning:
            self._reasoning += 1
        return pieces

    def _finish(self, event: Finished) -> list[Moment]:
        if event.reason is FinishReason.FAILED:
            raise EngineError(event.message or "the engine failed on this request")
        if event.reason is FinishReason.CANCELLED:  # not by the client: that one reads no more
            raise NotReadyError("the server ends and cut this answer off; ask again soon", retry_after_s=5)
        pieces = self.parser.finish(End.LENGTH if event.reason is FinishReason.LENGTH else End.STOP)
        chunks = [self._chunk(pieces)] if pieces else []
        self._note_block()
        return [*chunks, self._summary(event.timings)]

    def _summary(self, timings: Timings) -> Summary:
        end = self.parser.end or End.STOP
        return Summary(
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
            timings=timings,
            probabilities=tuple(self._probabilities),
            last_probabilities=tuple(self._probabilities[self._carried :]),
            of_content=tuple(self._of_content),
        )

    def _probability(self, event: Generated, logprob: float, *, reasoned: bool) -> Probability:
        text = self.service.tokenizer.token_bytes
        top = tuple((text(token), value) for token, value in event.top)
        return Probability(text(event.token), logprob, top, reasoned)

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
        chunk = Chunk(tuple(pieces), ids, probabilities)
        if probabilities:
            self._of_content += chunk.of_content
        return chunk


@dataclass(slots=True)
class Generation:
    """One answer in the making, of one choice or of several to the same prompt.

    `start` admits it or raises; iterate `moments` to its end, then read `summaries`.
    Call `cancel` when nobody listens any more.
    """

    service: Service
    choices: Sequence[Choice]
    _slow: bool = False
    _events: asyncio.Queue[tuple[int, Event]] = field(default_factory=asyncio.Queue)
    _summaries: dict[int, Summary] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """What tells it from all others."""
        return self.choices[0].request.id

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt that all choices share."""
        return len(self.choices[0].request.prompt)

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """All choices, once they are complete."""
        return tuple(self._summaries[index] for index in range(len(self.choices)))

    async def start(self) -> None:
        """Submit, and wait until all are let in; raises CapacityError or NotReadyError."""
        try:
            let_in = [self._submit(index) for index in range(len(self.choices))]
            await asyncio.gather(*map(asyncio.wrap_future, let_in))
        except BaseException:  # a refusal, or the client left meanwhile: none may be made alone
            self.cancel()
            raise

    def _submit(self, index: int) -> Future[None]:
        loop, mailbox = asyncio.get_running_loop(), self.service.mailbox
        take = functools.partial(self._note, index)
        return self.service.engine.submit(
            self.choices[index].request, lambda event: mailbox.post(loop, take, event)
        )

    def cancel(self) -> None:
        """Stop working on this answer; harmless when it is over."""
        for choice in self.choices:
            self.service.engine.cancel(choice.request.id)

    def _note(self, index: int, event: Event) -> None:
        """Keep an event until the client takes it; a client that takes none for too long is given up."""
        if self._events.qsize() > MAX_UNREAD and not self._slow:
            self._slow = True
            self.service.engine.metrics.add("shed_slow_reader")
            self.cancel()
        self._events.put_nowait((index, event))

    async def moments(self) -> AsyncIterator[tuple[int, Moment]]:
        """What happens to each choice, in order, with its number."""
        while len(self._summaries) < len(self.choices):
            index, event = await self._events.get()
            if self._slow and isinstance(event, Finished):
                raise CapacityError("the answer was given up because nobody read it for too long")
            for moment in self.choices[index].take(event):
                if isinstance(moment, Summary):
                    self._summaries[index] = moment
                yield index, moment

    async def complete(self) -> tuple[Summary, ...]:
        """The whole answer, when nobody wants to see it grow."""
        async for _ in self.moments():
            pass
        return self.summaries
