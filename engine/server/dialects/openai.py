"""The OpenAI chat dialect: reads a request body, writes answers, chunks and errors.

Owns member names, bounds and shapes of this dialect.  Knows nothing of sockets or of the engine thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chat.normalise import normalise
from engine.chat.pieces import CallArguments, CallStart, Output, Piece
from engine.chat.request import ChatRequest, ToolCall
from engine.chat.thinking import read_thinking
from engine.chat.tools import read_choice, read_response_schema, read_tools
from engine.errors import ContextLengthError, EngineError, RequestError
from engine.server.ask import (
    MAX_TOP_LOGPROBS,
    Ask,
    flag,
    read_budget,
    read_cache,
    read_count,
    read_model,
    read_sampling,
    read_seed,
    read_stops,
)
from engine.server.dialects.counts import timings, usage
from engine.server.dialects.dialect import Defaults, Envelope
from engine.server.dialects.probabilities import logprobs
from engine.server.fields import Fields
from engine.server.generation import Chunk, Probability, Summary
from engine.server.stream import DONE, KEEPALIVE, data_frame


@dataclass(frozen=True, slots=True)
class OpenAIChat:
    """POST /v1/chat/completions."""

    surface: str = "openai_chat"
    prompt_member: str = "messages"

    def read(self, body: Mapping[str, object], defaults: Defaults) -> Ask:
        """Check a body and read it; raises RequestError naming the member that is wrong."""
        fields = Fields(body)
        _refuse_unsupported(fields)
        conversation = normalise(body.get("messages"))
        thinking = read_thinking(body, default=defaults.thinking)
        tools = read_tools(body)
        chat = ChatRequest(
            system=conversation.system,
            turns=conversation.turns,
            tools=tuple(tool.schema for tool in tools),
            thinking=thinking.on,
            effort=thinking.effort,
            response_schema=read_response_schema(body.get("response_format"), "response_format"),
        )
        return Ask(
            prompt=chat,
            count=read_count(fields),
            tools=tools,
            choice=read_choice(body, tools),
            sampling=read_sampling(fields, defaults.sampling),
            model=read_model(fields),
            stream=flag(fields, "stream", default=False),
            include_usage=flag(fields.nested("stream_options"), "include_usage", default=False),
            max_tokens=read_budget(fields, "max_completion_tokens", "max_tokens"),
            seed=read_seed(fields),
            stops=read_stops(fields, "stop"),
            cache=read_cache(fields),
            parallel_calls=flag(fields, "parallel_tool_calls", default=True),
            return_token_ids=flag(fields, "return_token_ids", default=False),
            top_logprobs=_top_logprobs(fields),
        )

    def writer(self, _: Mapping[str, object], ask: Ask, envelope: Envelope) -> ChatWriter:
        """Writes one chat completion."""
        return ChatWriter(ask, envelope)


def _top_logprobs(fields: Fields) -> int | None:
    """How many likely tokens are reported beside each; None for no report at all."""
    asked = fields.boolean("logprobs")
    most = fields.integer("top_logprobs", low=0, high=MAX_TOP_LOGPROBS)
    if most and not asked:
        raise RequestError(
            f"top_logprobs is {most} and logprobs is not true; set it, or leave both out",
            param="top_logprobs",
        )
    return (most or 0) if asked else None


def _refuse_unsupported(fields: Fields) -> None:
    if fields.members.get("logit_bias"):
        raise fields.refuse("logit_bias", "leave it out")
    if fields.members.get("audio") is not None or "audio" in _modalities(fields):
        raise fields.refuse("audio", "this model reads and writes text only")


def _modalities(fields: Fields) -> Sequence[object]:
    value = fields.members.get("modalities")
    return value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class ChatWriter:
    """One chat completion."""

    ask: Ask
    envelope: Envelope

    def whole(self, summaries: Sequence[Summary]) -> dict[str, Any]:
        """The whole answer at once."""
        choices = [self._choice(index, summary) for index, summary in enumerate(summaries)]
        counts = {"usage": usage(summaries), "timings": timings(summaries)}
        return self._wrap("chat.completion", choices=choices, **counts)

    def _choice(self, index: int, summary: Summary) -> dict[str, Any]:
        calls = [{"id": call.id, **_function(call)} for call in summary.calls]
        message: dict[str, Any] = {"role": "assistant", "content": summary.content}
        if calls and not summary.content:
            message["content"] = None
        if summary.reasoning:
            message["reasoning_content"] = summary.reasoning
        if calls:
            message["tool_calls"] = calls
        choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "logprobs": _logprobs(summary.probabilities),
            "finish_reason": summary.end.value,
        }
        return choice | ({"token_ids": list(summary.token_ids)} if self.ask.return_token_ids else {})

    def accepted(self) -> list[bytes]:
        """A comment."""
        return [KEEPALIVE]

    def admitted(self, _: int) -> list[bytes]:
        """Nothing."""
        return []

    def opened(self, index: int) -> list[bytes]:
        """The chunk that names the role."""
        return [self._chunk(index, {"role": "assistant", "content": ""})]

    def chunk(self, index: int, chunk: Chunk) -> list[bytes]:
        """One chunk for each delta; the first of them carries the ids and their probabilities."""
        frames = []
        beside = self._with_tokens(chunk.token_ids, chunk.probabilities)
        for delta in deltas(chunk.pieces):
            frames.append(self._chunk(index, delta, **beside))
            beside = self._with_tokens((), ())
        return frames

    def closed(self, index: int, summary: Summary) -> list[bytes]:
        """The chunk with the reason, and with the times unless they come with the counts."""
        beside = self._with_tokens(summary.last_ids, summary.last_probabilities)
        times = {} if self.ask.include_usage else {"timings": timings([summary])}
        return [self._chunk(index, {}, summary.end.value, beside=times, **beside)]

    def finished(self, summaries: Sequence[Summary]) -> list[bytes]:
        """The counts if they were asked for, and the end mark."""
        if not self.ask.include_usage:
            return [DONE]
        counts = {"choices": [], "usage": usage(summaries), "timings": timings(summaries)}
        return [data_frame(self._wrap("chat.completion.chunk", **counts)), DONE]

    def failed(self, error: EngineError) -> list[bytes]:
        """A data line with the error, and no end mark."""
        return [data_frame(error_body(error))]

    def silent(self) -> bytes:
        """A comment."""
        return KEEPALIVE

    def _with_tokens(self, ids: Sequence[int], tokens: Sequence[Probability]) -> dict[str, Any]:
        found: dict[str, Any] = {"logprobs": _logprobs(tokens)}
        return found | {"token_ids": list(ids)} if self.ask.return_token_ids else found

    def _wrap(self, kind: str, **members: Any) -> dict[str, Any]:
        head = {"id": f"chatcmpl-{self.envelope.key}", "object": kind, "created": self.envelope.created}
        same = {"model": self.envelope.model, "system_fingerprint": self.envelope.fingerprint}
        return {**head, **same, **members}

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        finish: str | None = None,
        *,
        beside: Mapping[str, Any] | None = None,
        **in_choice: Any,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **in_choice}
        return data_frame(self._wrap("chat.completion.chunk", choices=[choice], **(beside or {})))


def _logprobs(tokens: Sequence[Probability]) -> dict[str, Any] | None:
    """The `logprobs` member of a choice; None when there is nothing to report."""
    return {"content": logprobs(tokens), "refusal": None} if tokens else None


def deltas(pieces: Iterable[Output]) -> list[dict[str, Any]]:
    """Chunk deltas for what the parser handed out."""
    found: list[dict[str, Any]] = []
    for piece in pieces:
        match piece:
            case Piece(kind="content"):
                found.append({"content": piece.text})
            case Piece():
                found.append({"reasoning_content": piece.text})
            case CallStart():
                head = {"index": piece.index, **_function(ToolCall(None, piece.name, "")), "id": piece.id}
                found.append({"tool_calls": [head]})
            case CallArguments():
                found.append({"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]})
    return found


def _function(call: ToolCall) -> dict[str, Any]:
    return {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def error_body(error: EngineError) -> dict[str, Any]:
    """The error object of all OpenAI dialects; never a path or a stack."""
    found: dict[str, Any] = {
        "message": str(error),
        "type": "invalid_request_error" if isinstance(error, RequestError) else "server_error",
        "param": error.param if isinstance(error, RequestError) else None,
        "code": error.code,
    }
    if isinstance(error, ContextLengthError):
        found |= {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context_tokens}
    return {"error": found}
