"""The OpenAI chat dialect: reads a request body, writes answers, chunks and errors.

Owns member names, bounds and shapes of this dialect.  Knows nothing of sockets or of the engine thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chat.normalise import normalise
from engine.chat.output import CallPiece, Output, Piece
from engine.chat.request import ChatRequest
from engine.chat.thinking import read_thinking
from engine.chat.tools import Tool, read_response_schema, read_tools
from engine.core import SamplingParams
from engine.errors import ContextLengthError, EngineError, RequestError
from engine.server.fields import Fields
from engine.server.generation import Summary
from engine.server.ids import call_id

MAX_MODEL_LENGTH = 1024  # it is repeated in every chunk of a stream
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_TOP_K = 2**31 - 1
SEED_BOUND = 2**63


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Everything a chat request asks for besides the conversation; None means not said."""

    chat: ChatRequest
    tools: tuple[Tool, ...]
    sampling: SamplingParams
    model: str | None
    stream: bool
    include_usage: bool
    max_tokens: int | None
    seed: int | None
    stops: tuple[str, ...]
    reuse: bool
    parallel_calls: bool
    return_token_ids: bool


def read_chat(body: Mapping[str, object], *, defaults: SamplingParams) -> ChatOptions:
    """Check a body and read it; raises RequestError naming the member that is wrong."""
    fields = Fields(body)
    _refuse_unsupported(fields)
    conversation = normalise(body.get("messages"))
    thinking = read_thinking(body)
    tools = read_tools(body)
    model = fields.string("model", longest=MAX_MODEL_LENGTH)
    chat = ChatRequest(
        system=conversation.system,
        turns=conversation.turns,
        tools=tuple(tool.schema for tool in tools),
        thinking=thinking.on,
        effort=thinking.effort,
        response_schema=read_response_schema(body),
    )
    reuse, parallel = fields.boolean("cache_prompt"), fields.boolean("parallel_tool_calls")
    return ChatOptions(
        chat=chat,
        tools=tools,
        sampling=_sampling(fields, defaults),
        model=model.encode("utf-8", "replace").decode() if model else None,
        stream=fields.boolean("stream") or False,
        include_usage=fields.nested("stream_options").boolean("include_usage") or False,
        max_tokens=_max_tokens(fields),
        seed=fields.integer("seed", low=-SEED_BOUND, high=2 * SEED_BOUND - 1),
        stops=fields.strings("stop", most=MAX_STOPS, longest=MAX_STOP_LENGTH),
        reuse=True if reuse is None else reuse,
        parallel_calls=True if parallel is None else parallel,
        return_token_ids=fields.boolean("return_token_ids") or False,
    )


def _refuse_unsupported(fields: Fields) -> None:
    if fields.integer("n", low=1) not in (None, 1):
        raise fields.refuse("n", "one answer a request; send the request again for another")
    if fields.boolean("logprobs"):
        raise fields.refuse("logprobs", "this server does not report probabilities")
    if fields.integer("top_logprobs", low=0):
        raise fields.refuse("top_logprobs", "this server does not report probabilities")
    if fields.members.get("logit_bias"):
        raise fields.refuse("logit_bias", "leave it out")
    if fields.members.get("audio") is not None or "audio" in _modalities(fields):
        raise fields.refuse("audio", "this model reads and writes text only")


def _modalities(fields: Fields) -> Sequence[object]:
    value = fields.members.get("modalities")
    return value if isinstance(value, list) else ()


def _sampling(fields: Fields, defaults: SamplingParams) -> SamplingParams:
    temperature = fields.number("temperature", low=0.0, high=2.0)
    top_p = fields.number("top_p", low=0.0, high=1.0, above=True)
    top_k = fields.integer("top_k", low=0, high=MAX_TOP_K)
    min_p = fields.number("min_p", low=0.0, high=1.0)
    return SamplingParams(
        temperature=defaults.temperature if temperature is None else temperature,
        top_p=defaults.top_p if top_p is None else top_p,
        top_k=defaults.top_k if top_k is None else top_k,
        min_p=defaults.min_p if min_p is None else min_p,
    )


def _max_tokens(fields: Fields) -> int | None:
    """A budget larger than the room is no error, so there is no upper bound; it is clamped at once."""
    wins = fields.integer("max_completion_tokens", low=0)
    return fields.integer("max_tokens", low=0) if wins is None else wins


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every chunk and answer of one request repeats."""

    id: str
    created: int
    model: str
    fingerprint: str

    def wrap(self, kind: str, **members: Any) -> dict[str, Any]:
        """One answer object of the given kind."""
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "system_fingerprint": self.fingerprint, **members}

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None, **members: Any) -> dict[str, Any]:
        """One chunk of a stream; `members` go beside the delta."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **members}
        return self.wrap("chat.completion.chunk", choices=[choice])


def answer(
    envelope: Envelope, pieces: Iterable[Output], summary: Summary, *, token_ids: Sequence[int] | None
) -> dict[str, Any]:
    """The whole answer at once."""
    content, reasoning, calls = "", "", []
    for piece in pieces:
        if isinstance(piece, CallPiece):
            calls.append(_call(piece))
        elif piece.kind == "content":
            content += piece.text
        else:
            reasoning += piece.text
    message: dict[str, Any] = {"role": "assistant", "content": None if calls and not content else content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": summary.end.value}
    if token_ids is not None:
        choice["token_ids"] = list(token_ids)
    return envelope.wrap("chat.completion", choices=[choice], usage=usage(summary), timings=timings(summary))


def deltas(pieces: Iterable[Output]) -> list[dict[str, Any]]:
    """Chunk deltas for what the parser handed out."""
    found: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, Piece):
            found.append({"content" if piece.kind == "content" else "reasoning_content": piece.text})
        else:
            whole = _call(piece)
            function = {**whole["function"], "arguments": ""}
            found.append({"tool_calls": [{"index": piece.index, **whole, "function": function}]})
            arguments = {"arguments": piece.call.arguments}
            found.append({"tool_calls": [{"index": piece.index, "function": arguments}]})
    return found


def _call(piece: CallPiece) -> dict[str, Any]:
    function = {"name": piece.call.name, "arguments": piece.call.arguments}
    return {"id": call_id(), "type": "function", "function": function}


def usage(summary: Summary) -> dict[str, Any]:
    """Token counts; cached and written tokens add up to the prompt."""
    prompt, cached = summary.timings.prompt_tokens, summary.timings.cached_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": summary.completion_tokens,
        "total_tokens": prompt + summary.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": prompt - cached},
        "completion_tokens_details": {"reasoning_tokens": summary.reasoning_tokens},
        "prompt_cache_hit_tokens": cached,
        "prompt_cache_miss_tokens": prompt - cached,
    }


def timings(summary: Summary) -> dict[str, Any]:
    """Times in ms, rates in tokens/s; what does not apply is left out.  Both common spellings are there."""
    times = summary.timings
    computed = times.prompt_tokens - times.cached_tokens
    after_first = max(0, times.generated_tokens - 1)
    found: dict[str, Any] = {
        "queue_ms": _ms(times.queue_s),
        "ttft_ms": _ms(times.first_token_s),
        "prefill_ms": _ms(times.prefill_s),
        "prefill_tokens": times.prompt_tokens,
        "prefill_cached": times.cached_tokens,
        "prefill_computed": computed,
        "decode_ms": _ms(times.decode_s),
        "decode_tokens": after_first,
        "total_ms": _ms(times.total_s),
        "cache_kind": times.kind.value,
        "cache_n": times.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": _ms(times.prefill_s),
        "predicted_n": times.generated_tokens,
        "predicted_ms": _ms(times.decode_s),
    }
    if times.batch_mean:
        found["batch_mean"] = round(times.batch_mean, 2)
    if times.prefill_s > 0 and computed:
        found["prefill_tok_s"] = found["prompt_per_second"] = round(computed / times.prefill_s, 2)
    if times.decode_s > 0 and after_first:
        found["decode_tok_s"] = found["predicted_per_second"] = round(after_first / times.decode_s, 2)
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def error_body(error: EngineError) -> dict[str, Any]:
    """The error object of this dialect; never a path or a stack."""
    found: dict[str, Any] = {
        "message": str(error),
        "type": "invalid_request_error" if isinstance(error, RequestError) else "server_error",
        "param": error.param if isinstance(error, RequestError) else None,
        "code": error.code,
    }
    if isinstance(error, ContextLengthError):
        found |= {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context_tokens}
    return {"error": found}
