"""One endpoint that makes answers, for any dialect: from a body to an answer or a stream.

Joins dialect, generation, stream and bookkeeping.  Decides nothing about scheduling.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from engine.chat.output import OutputParser
from engine.chat.pieces import Parser
from engine.chat.plain import PlainParser
from engine.chat.request import AssistantTurn, ChatRequest, Effort
from engine.chat.rules import Form
from engine.config import ServerSettings
from engine.core import Request, SamplingParams, TokenRule
from engine.errors import BrokenCallError, ContextLengthError, EngineError, RequestError
from engine.metrics import Metrics
from engine.server import journal
from engine.server.answers import UNEXPECTED, json_response
from engine.server.ask import Ask
from engine.server.body import decode_object, read_body
from engine.server.dialects.counts import timings
from engine.server.dialects.dialect import Defaults, Dialect, Envelope, Writer
from engine.server.generation import Admitted, Choice, Chunk, Generation, Moment, Opened, Summary
from engine.server.ids import answer_key, fresh_seed, nth_seed
from engine.server.service import Host, Service
from engine.server.stream import ClientGoneError, EventStream, until_gone

LARGE_BODY = 256 * 1024  # bytes; decoding more than this would hold up every other connection
THINK_MODES = {Effort.NONE: "none", Effort.MAX: "max"}  # all others count as high


@dataclass(frozen=True, slots=True)
class Intake:
    """Reads bodies within the server's limits; `fingerprint` names the build."""

    host: Host
    settings: ServerSettings
    fingerprint: str

    async def read(self, http: HttpRequest) -> Mapping[str, object]:
        """The JSON object of a body."""
        limit = self.settings.max_body_mib * 2**20
        body = await read_body(
            http, limit=limit, timeout_s=self.settings.body_timeout_s, traffic=self.host.traffic
        )
        if len(body) < LARGE_BODY:
            return decode_object(body)
        return await asyncio.to_thread(decode_object, body)

    def defaults(self) -> Defaults:
        """What the operator set for requests that do not say."""
        settings = self.settings
        sampling = SamplingParams(temperature=settings.default_temperature, min_p=settings.default_min_p)
        return Defaults(sampling, thinking=settings.default_thinking)


@dataclass(frozen=True, slots=True)
class Caller:
    """What the head of an HTTP request says of its prefixes: whose they are, and whether to pin them."""

    tenant: str
    pin: bool

    def within(self, salt: str) -> str:
        """The tenant that shares prefixes with this one under the same salt."""
        if not salt:
            return self.tenant
        return hashlib.sha256(f"{self.tenant} {salt}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AnswerEndpoint:
    """Answers the requests of one dialect."""

    intake: Intake
    dialect: Dialect

    async def answer(self, http: HttpRequest) -> ASGIApp:
        """One answer, streamed or whole."""
        name = http.state.request_id
        try:
            return await self._answer(http, name)
        except EngineError as error:
            journal.refused(self.dialect.surface, request=name, error=error)
            raise

    async def _answer(self, http: HttpRequest, name: str) -> ASGIApp:
        service = self.intake.host.service
        metrics = service.engine.metrics
        try:
            body = await self.intake.read(http)
            ask, prompt = await asyncio.to_thread(self._understand, service, body)
            thinking = prompt[-1] == service.markers.think
            rules = await _rules(service, ask, thinking=thinking, begun_member=self.dialect.prompt_member)
        except RequestError as error:
            metrics.reject("too_long" if isinstance(error, ContextLengthError) else "bad_request")
            raise
        generation = _generation(service, ask, _request(service, ask, prompt, _caller(http)), rules)
        answer = Answer(self, name, generation, ask.stream)
        writer = self.dialect.writer(body, ask, self._envelope(service, ask, generation))
        await generation.start()
        self._count(metrics, ask)
        if ask.stream:
            keepalive_s = self.intake.settings.keepalive_s
            frames, ended = answer.frames(writer), generation.cancel
            return EventStream(frames, silent=writer.silent, keepalive_s=keepalive_s, ended=ended)
        return json_response(await answer.whole(writer, http))

    def _understand(self, service: Service, body: Mapping[str, object]) -> tuple[Ask, tuple[int, ...]]:
        """What is asked, and the ids of its prompt: a long one takes a while."""
        ask = self.dialect.read(body, self.intake.defaults())
        return ask, service.prompt_ids(ask.prompt, member=self.dialect.prompt_member)

    def _envelope(self, service: Service, ask: Ask, generation: Generation) -> Envelope:
        return Envelope(
            key=generation.id,
            created=self.intake.host.now(),
            model=ask.model or service.model_id,
            fingerprint=self.intake.fingerprint,
            prompt_tokens=generation.prompt_tokens,
        )

    def _count(self, metrics: Metrics, ask: Ask) -> None:
        metrics.add(f"route_{self.dialect.surface}")
        if isinstance(ask.prompt, ChatRequest):
            metrics.add(f"think_{THINK_MODES.get(ask.prompt.effort, 'high')}")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer on its way to one client, and what is noted about it."""

    endpoint: AnswerEndpoint
    request_id: str
    generation: Generation
    streamed: bool

    async def whole(self, writer: Writer, http: HttpRequest) -> dict[str, object]:
        """The whole answer; ClientGoneError when nobody waits for it any more."""
        try:
            summaries = await until_gone(self.generation.complete(), http.receive)
        except ClientGoneError:
            self._left()
            raise
        finally:
            self.generation.cancel()
        self._ended()
        return writer.whole(summaries)

    async def frames(self, writer: Writer) -> AsyncGenerator[bytes, None]:
        """All events of a stream; whoever reads them cancels the generation in the end."""
        over = False
        try:
            for frame in writer.accepted():
                yield frame
            async for index, moment in self.generation.moments():
                for frame in _frames(writer, index, moment):
                    yield frame
            over = True
            self._ended()
            for frame in writer.finished(self.generation.summaries):
                yield frame
        except Exception as error:  # the status is out: whatever it is, the client must be told in the stream
            over = True
            surface, answer = self.endpoint.dialect.surface, self.generation.id
            journal.failed(surface, request=self.request_id, answer=answer, error=error)
            for frame in writer.failed(error if isinstance(error, EngineError) else EngineError(UNEXPECTED)):
                yield frame
        finally:
            if not over:
                self._left()

    def _ended(self) -> None:
        summaries = self.generation.summaries
        self.endpoint.intake.host.traffic.last = timings(summaries)
        journal.answered(
            self.endpoint.dialect.surface,
            request=self.request_id,
            answer=self.generation.id,
            stream=self.streamed,
            summaries=summaries,
        )

    def _left(self) -> None:
        surface, answer = self.endpoint.dialect.surface, self.generation.id
        journal.left(surface, request=self.request_id, answer=answer)


def _frames(writer: Writer, index: int, moment: Moment) -> list[bytes]:
    """What a stream shows of a moment; raises BrokenCallError for a choice that it cannot take back."""
    match moment:
        case Chunk():
            return writer.chunk(index, moment)
        case Admitted():
            return writer.admitted(moment.cached_tokens)
        case Opened():
            return writer.opened(index)
        case Summary():
            if moment.spoiled:
                raise BrokenCallError("the tool call broke off and cannot be run; ask again")
            return writer.closed(index, moment)


def _caller(http: HttpRequest) -> Caller:
    return Caller(http.state.tenant, pin=http.headers.get("x-pin-cache", "").strip() == "1")


def _generation(service: Service, ask: Ask, first: Request, rules: Sequence[TokenRule | None]) -> Generation:
    """A choice for each rule; all but the first wait for its prompt and start from there."""
    room = service.context - len(first.prompt)
    fills = ask.max_tokens is None or ask.max_tokens > room
    requests = [
        replace(
            first,
            id=answer_key() if index else first.id,
            seed=nth_seed(first.seed, index),
            rule=rule,
            follows=first.id if index and first.reuse else None,
        )
        for index, rule in enumerate(rules)
    ]
    choices = [Choice(service, request, _parser(service, ask, first.prompt), fills) for request in requests]
    return Generation(service, choices)


def _request(service: Service, ask: Ask, prompt: tuple[int, ...], caller: Caller) -> Request:
    """What all choices have in common; without a rule."""
    room = service.context - len(prompt)
    return Request(
        id=answer_key(),
        prompt=prompt,
        max_tokens=room if ask.max_tokens is None else min(room, ask.max_tokens),
        sampling=ask.sampling,
        seed=fresh_seed() if ask.seed is None else ask.seed,
        stop_ids=service.stop_ids,
        banned_ids=() if ask.plain or ask.tools else (service.markers.dsml,),
        reuse=ask.cache.reuse,
        tenant=caller.within(ask.cache.salt),
        pin=True if ask.cache.pin is None and caller.pin else ask.cache.pin,
        top_logprobs=ask.top_logprobs,
    )


async def _rules(
    service: Service, ask: Ask, *, thinking: bool, begun_member: str
) -> Sequence[TokenRule | None]:
    """A rule for each choice, made of one grammar; nobody who wants none waits for it."""
    most = service.engine.limits.max_sequences
    if ask.count > most:
        raise RequestError(
            f"n is {ask.count}; this server makes at most {most} answers side by side; ask several times",
            param="n",
        )
    if not isinstance(ask.prompt, ChatRequest):
        return [None] * ask.count
    last = ask.prompt.turns[-1]
    form = Form(
        tools=ask.tools,
        choice=ask.choice,
        parallel=ask.parallel_calls,
        schema=ask.prompt.response_schema,
        begun=last.content if isinstance(last, AssistantTurn) else "",
        member=ask.format_member,
        begun_member=begun_member,
    )
    make = functools.partial(service.rules.several, form, ask.count, thinking=thinking)
    if not form.demanding:
        return make()
    return await asyncio.get_running_loop().run_in_executor(service.rules.builders, make)


def _parser(service: Service, ask: Ask, prompt: tuple[int, ...]) -> Parser:
    if ask.plain:
        return PlainParser(ask.stops)
    return OutputParser(
        thinking=prompt[-1] == service.markers.think,
        tools=ask.tools,
        stops=ask.stops,
        parallel=ask.parallel_calls,
        new_id=ask.new_call_id,
    )
