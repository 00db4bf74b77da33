"""POST /v1/chat/completions and /tokenize: from a body to an answer or a stream.

Joins dialect, generation and stream.  Decides nothing about scheduling.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp

from engine.chat.output import OutputParser
from engine.config import ServerSettings
from engine.core import Request, SamplingParams
from engine.errors import EngineError
from engine.server import openai
from engine.server.body import decode_object, read_body
from engine.server.generation import Chunk, Generation
from engine.server.ids import answer_id, fresh_seed
from engine.server.service import Host, Service
from engine.server.stream import DONE, EventStream, frame, until_gone

LARGE_BODY = 256 * 1024  # bytes; decoding more than this would hold up every other connection


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """Answers chat requests; every dependency is handed in."""

    host: Host
    settings: ServerSettings
    fingerprint: str

    async def complete(self, http: HttpRequest) -> ASGIApp:
        """One chat completion, streamed or whole."""
        service = self.host.service
        options = await self._read(http)
        prompt = await asyncio.to_thread(service.prompt_ids, options.chat)
        generation = _generation(service, options, prompt)
        envelope = openai.Envelope(
            id=generation.request.id,
            created=self.host.now(),
            model=options.model or service.model_id,
            fingerprint=self.fingerprint,
        )
        generation.start()
        if options.stream:
            frames = _frames(generation, envelope, options)
            return EventStream(frames, keepalive_s=self.settings.keepalive_s)
        try:
            answer = await until_gone(_whole(generation, envelope, options), http.receive)
        finally:
            generation.cancel()
        return json_response(answer)

    async def tokenize(self, http: HttpRequest) -> Response:
        """The exact number of prompt tokens a chat request would have."""
        service = self.host.service
        options = await self._read(http)
        ids = await asyncio.to_thread(service.prompt_ids, options.chat)
        return json_response({"count": len(ids)})

    async def _read(self, http: HttpRequest) -> openai.ChatOptions:
        limit = self.settings.max_body_mib * 2**20
        body = await read_body(http, limit=limit, timeout_s=self.settings.body_timeout_s)
        defaults = SamplingParams(
            temperature=self.settings.default_temperature, min_p=self.settings.default_min_p
        )
        if len(body) < LARGE_BODY:
            return openai.read_chat(decode_object(body), defaults=defaults)
        return await asyncio.to_thread(lambda: openai.read_chat(decode_object(body), defaults=defaults))


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def _generation(service: Service, options: openai.ChatOptions, prompt: tuple[int, ...]) -> Generation:
    room = service.context - len(prompt)
    request = Request(
        id=answer_id(),
        prompt=prompt,
        max_tokens=room if options.max_tokens is None else min(room, options.max_tokens),
        sampling=options.sampling,
        seed=fresh_seed() if options.seed is None else options.seed,
        stop_ids=service.stop_ids,
        banned_ids=() if options.tools else (service.markers.dsml,),
        reuse=options.reuse,
    )
    parser = OutputParser(
        thinking=prompt[-1] == service.markers.think,
        tools=options.tools,
        stops=options.stops,
        parallel=options.parallel_calls,
    )
    return Generation(service, request, parser)


async def _whole(
    generation: Generation, envelope: openai.Envelope, options: openai.ChatOptions
) -> dict[str, Any]:
    pieces = [piece async for chunk in generation.chunks() for piece in chunk.pieces]
    assert generation.summary is not None
    ids = generation.token_ids if options.return_token_ids else None
    return openai.answer(envelope, pieces, generation.summary, token_ids=ids)


async def _frames(
    generation: Generation, envelope: openai.Envelope, options: openai.ChatOptions
) -> AsyncGenerator[bytes, None]:
    """All events of a stream; closing it early cancels the generation."""
    try:
        opened = False
        async for chunk in generation.chunks():
            if not opened:
                opened = True
                yield frame(envelope.chunk({"role": "assistant", "content": ""}))
            for data in _chunk_frames(chunk, envelope, with_ids=options.return_token_ids):
                yield data
        for data in _last_frames(generation, envelope, options):
            yield data
        yield DONE
    except EngineError as error:
        yield frame(openai.error_body(error))
    finally:
        generation.cancel()


def _chunk_frames(chunk: Chunk, envelope: openai.Envelope, *, with_ids: bool) -> list[bytes]:
    frames = []
    ids = list(chunk.token_ids)
    for delta in openai.deltas(chunk.pieces):
        beside: dict[str, Any] = {"token_ids": ids} if with_ids else {}
        frames.append(frame(envelope.chunk(delta, **beside)))
        ids = []
    return frames


def _last_frames(
    generation: Generation, envelope: openai.Envelope, options: openai.ChatOptions
) -> list[bytes]:
    summary = generation.summary
    assert summary is not None
    beside: dict[str, Any] = {"token_ids": list(generation.last_ids)} if options.return_token_ids else {}
    last = envelope.chunk({}, summary.end.value, **beside)
    times = openai.timings(summary)
    if not options.include_usage:
        return [frame({**last, "timings": times})]
    counts = {"choices": [], "usage": openai.usage(summary), "timings": times}
    return [frame(last), frame(envelope.wrap("chat.completion.chunk", **counts))]
