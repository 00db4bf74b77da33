"""The OpenAI completions dialect: a prompt without any chat format, continued as it stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.chat.normalise import kind_of
from engine.chat.request import ChatRequest, Effort, Prompt, RawPrompt, UserText, UserTurn
from engine.errors import EngineError, RequestError
from engine.server.ask import (
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
from engine.server.dialects.openai import error_body
from engine.server.dialects.probabilities import LogprobLists
from engine.server.fields import Fields
from engine.server.generation import Chunk, Probability, Summary
from engine.server.stream import DONE, KEEPALIVE, data_frame

MAX_LOGPROBS = 5
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
            count=read_count(fields),
            sampling=read_sampling(fields, defaults.sampling),
            model=read_model(fields),
            stream=flag(fields, "stream", default=False),
            include_usage=flag(fields.nested("stream_options"), "include_usage", default=False),
            max_tokens=read_budget(fields, "max_tokens"),
            seed=read_seed(fields),
            stops=read_stops(fields, "stop"),
            cache=read_cache(fields),
            return_token_ids=flag(fields, "return_token_ids", default=False),
            top_logprobs=fields.integer("logprobs", low=0, high=MAX_LOGPROBS),
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
    if fields.integer("best_of", low=1) not in (None, read_count(fields)):
        raise fields.refuse("best_of", "every answer that is made is given; ask for n of them")
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
    _lists: defaultdict[int, LogprobLists] = field(default_factory=lambda: defaultdict(LogprobLists))

    def whole(self, summaries: Sequence[Summary]) -> dict[str, Any]:
        """The whole answer at once."""
        choices = [
            self._choice(index, summary.content, summary.token_ids, summary.probabilities, summary.end.value)
            for index, summary in enumerate(summaries)
        ]
        return self._wrap(choices=choices, usage=usage(summaries), timings=timings(summaries))

    def accepted(self) -> list[bytes]:
        """A comment."""
        return [KEEPALIVE]

    def admitted(self, _: int) -> list[bytes]:
        """Nothing."""
        return []

    def opened(self, _: int) -> list[bytes]:
        """Nothing: text is the first thing to say."""
        return []

    def chunk(self, index: int, chunk: Chunk) -> list[bytes]:
        """One chunk of text."""
        text = "".join(getattr(piece, "text", "") for piece in chunk.pieces)
        choice = self._choice(index, text, chunk.token_ids, chunk.probabilities)
        return [data_frame(self._wrap(choices=[choice]))]

    def closed(self, index: int, summary: Summary) -> list[bytes]:
        """The chunk with the reason, and with the times unless they come with the counts."""
        choice = self._choice(index, "", summary.last_ids, summary.last_probabilities, summary.end.value)
        times = {} if self.ask.include_usage else {"timings": timings([summary])}
        return [data_frame(self._wrap(choices=[choice], **times))]

    def finished(self, summaries: Sequence[Summary]) -> list[bytes]:
        """The counts if they were asked for, and the end mark."""
        if not self.ask.include_usage:
            return [DONE]
        counts = self._wrap(choices=[], usage=usage(summaries), timings=timings(summaries))
        return [data_frame(counts), DONE]

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

    def _choice(
        self,
        index: int,
        text: str,
        ids: Sequence[int],
        tokens: Sequence[Probability],
        finish: str | None = None,
    ) -> dict[str, Any]:
        lists = self._lists[index].part(tokens)
        choice = {"index": index, "text": text, "logprobs": lists, "finish_reason": finish}
        return choice | ({"token_ids": list(ids)} if self.ask.return_token_ids else {})
