"""The OpenAI completions dialect: a prompt without any chat format, continued as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.chat.normalise import kind_of
from engine.chat.request import ChatRequest, Effort, Prompt, RawPrompt, UserText, UserTurn
from engine.errors import EngineError, RequestError
from engine.server.ask import (
    Ask,
    flag,
    read_budget,
    read_cache,
    read_model,
    read_sampling,
    read_seed,
    read_stops,
)
from engine.server.dialects.counts import timings, usage
from engine.server.dialects.dialect import Defaults, Envelope
from engine.server.dialects.openai import error_body
from engine.server.fields import Fields
from engine.server.generation import Chunk, Summary
from engine.server.stream import DONE, KEEPALIVE, data_frame

WRAP_SYSTEM = "You are a helpful assistant"


@dataclass(frozen=True, slots=True)
class OpenAICompletions:
    """POST /v1/completions."""

    surface: str = "openai_completion"
    prompt_member: str = "prompt"

    def read(self, body: Mapping[str, object], defaults: Defaults) -> Ask:
        """Check a body and read it; raises RequestError naming the member that is wrong."""
        fields = Fields(body)
        _refuse_unsupported(fields)
        prompt = read_prompt(body)
        return Ask(
            prompt=_wrap(prompt) if flag(fields, "chat_wrap", default=False) else prompt,
            plain=True,
            sampling=read_sampling(fields, defaults.sampling),
            model=read_model(fields),
            stream=flag(fields, "stream", default=False),
            include_usage=flag(fields.nested("stream_options"), "include_usage", default=False),
            max_tokens=read_budget(fields, "max_tokens"),
            seed=read_seed(fields),
            stops=read_stops(fields, "stop"),
            cache=read_cache(fields),
            return_token_ids=flag(fields, "return_token_ids", default=False),
        )

    def writer(self, _: Mapping[str, object], ask: Ask, envelope: Envelope) -> CompletionWriter:
        """Writes one text completion."""
        return CompletionWriter(ask, envelope)


def read_prompt(body: Mapping[str, object]) -> RawPrompt:
    """The `prompt` member: a string, a list of one string, or a list of token ids."""
    value = body.get("prompt")
    if value is None:
        raise RequestError(
            "prompt is missing; send a text", param="prompt", code="missing_required_parameter"
        )
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, str):
        return RawPrompt(value)
    if not isinstance(value, list) or not value:
        raise RequestError(
            f"prompt must be a string or a list of token ids that is not empty, found {kind_of(value)}",
            param="prompt",
        )
    if all(isinstance(token, int) and not isinstance(token, bool) for token in value):
        return RawPrompt(ids=tuple(value))
    raise RequestError(
        "prompt holds several prompts or something else than ids; send one text or one list of ids",
        param="prompt",
        code="unsupported_parameter",
    )


def _wrap(prompt: RawPrompt) -> Prompt:
    if prompt.ids is not None:
        raise RequestError("chat_wrap needs a prompt that is text, found token ids", param="chat_wrap")
    turns = (UserTurn((UserText(prompt.text),)),)
    return ChatRequest(turns=turns, system=WRAP_SYSTEM, thinking=False, effort=Effort.NONE)


def _refuse_unsupported(fields: Fields) -> None:
    for name in ("n", "best_of"):
        if fields.integer(name, low=1) not in (None, 1):
            raise fields.refuse(name, "one answer a request; send the request again for another")
    if fields.integer("logprobs", low=0) is not None:
        raise fields.refuse("logprobs", "this server does not report probabilities here")
    if fields.boolean("echo"):
        raise fields.refuse("echo", "the prompt is not repeated")
    if fields.members.get("suffix"):
        raise fields.refuse("suffix", "this model only continues")
    if fields.members.get("logit_bias"):
        raise fields.refuse("logit_bias", "leave it out")


@dataclass(frozen=True, slots=True)
class CompletionWriter:
    """One text completion."""

    ask: Ask
    envelope: Envelope

    def whole(self, summary: Summary) -> dict[str, Any]:
        """The whole answer at once."""
        choice = self._choice(summary.content, summary.end.value, summary.token_ids)
        return self._wrap(choices=[choice], usage=usage(summary), timings=timings(summary))

    def accepted(self) -> list[bytes]:
        """A comment."""
        return [KEEPALIVE]

    def admitted(self, _: int) -> list[bytes]:
        """Nothing."""
        return []

    def opened(self) -> list[bytes]:
        """Nothing: text is the first thing to say."""
        return []

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """One chunk of text."""
        text = "".join(getattr(piece, "text", "") for piece in chunk.pieces)
        return [data_frame(self._wrap(choices=[self._choice(text, None, chunk.token_ids)]))]

    def finished(self, summary: Summary) -> list[bytes]:
        """The chunk with the reason, then counts if they were asked for."""
        choices = [self._choice("", summary.end.value, summary.last_ids)]
        times = {"timings": timings(summary)}
        if not self.ask.include_usage:
            return [data_frame(self._wrap(choices=choices, **times)), DONE]
        counts = self._wrap(choices=[], usage=usage(summary), **times)
        return [data_frame(self._wrap(choices=choices)), data_frame(counts), DONE]

    def failed(self, error: EngineError) -> list[bytes]:
        """A data line with the error, and no end mark."""
        return [data_frame(error_body(error))]

    def silent(self) -> bytes:
        """A comment."""
        return KEEPALIVE

    def _wrap(self, **members: Any) -> dict[str, Any]:
        head = {"id": f"cmpl-{self.envelope.key}", "object": "text_completion"}
        same = {"created": self.envelope.created, "model": self.envelope.model}
        return {**head, **same, "system_fingerprint": self.envelope.fingerprint, **members}

    def _choice(self, text: str, finish: str | None, ids: tuple[int, ...]) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return choice | ({"token_ids": list(ids)} if self.ask.return_token_ids else {})
