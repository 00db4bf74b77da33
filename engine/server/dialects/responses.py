"""The OpenAI Responses dialect: reads a request body.  Stateless: every request brings its whole input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.chat.request import ChatRequest
from engine.chat.thinking import read_thinking
from engine.chat.tools import read_choice, read_response_schema, read_tools
from engine.server.ask import (
    MAX_TOP_LOGPROBS,
    Ask,
    flag,
    read_budget,
    read_cache,
    read_model,
    read_sampling,
    read_seed,
    read_stops,
)
from engine.server.dialects.dialect import Defaults, Envelope
from engine.server.dialects.responses_events import ResponseWriter
from engine.server.dialects.responses_items import openai_choice, openai_tools, read_conversation
from engine.server.fields import Fields

FORMAT = "text.format"
STATEFUL = ("previous_response_id", "conversation", "prompt")


@dataclass(frozen=True, slots=True)
class OpenAIResponses:
    """POST /v1/responses."""

    surface: str = "openai_responses"
    prompt_member: str = "input"

    def read(self, body: Mapping[str, object], defaults: Defaults) -> Ask:
        """Check a body and read it; raises RequestError naming the member that is wrong."""
        fields = Fields(body)
        _refuse_unsupported(fields)
        conversation = read_conversation(body)
        thinking = read_thinking(body, default=defaults.thinking)
        declared, _ = openai_tools(body)
        spoken: dict[str, object] = {
            "tools": declared,
            "tool_choice": openai_choice(body),
        }
        tools = read_tools(spoken)
        chat = ChatRequest(
            system=conversation.system,
            turns=conversation.turns,
            tools=tuple(tool.schema for tool in tools),
            thinking=thinking.on,
            effort=thinking.effort,
            response_schema=read_response_schema(
                fields.nested("text").members.get("format"), FORMAT, flat=True
            ),
        )
        return Ask(
            prompt=chat,
            tools=tools,
            choice=read_choice(spoken, tools),
            sampling=read_sampling(fields, defaults.sampling),
            model=read_model(fields),
            stream=flag(fields, "stream", default=False),
            max_tokens=read_budget(fields, "max_output_tokens", "max_tokens"),
            seed=read_seed(fields),
            stops=read_stops(fields, "stop"),
            cache=read_cache(fields),
            parallel_calls=flag(fields, "parallel_tool_calls", default=True),
            top_logprobs=_top_logprobs(fields),
            format_member=FORMAT,
        )

    def writer(self, body: Mapping[str, object], ask: Ask, envelope: Envelope) -> ResponseWriter:
        """Writes one response."""
        return ResponseWriter.of(body, ask, envelope)


def _refuse_unsupported(fields: Fields) -> None:
    for name in STATEFUL:
        if fields.members.get(name) is not None:
            raise fields.refuse(name, "this server stores nothing; send the full input each time")
    if fields.boolean("background"):
        raise fields.refuse("background", "answers are made while the client waits")
    if fields.integer("n", low=1) not in (None, 1):
        raise fields.refuse("n", "a response is one answer; send the request again for another")


def _top_logprobs(fields: Fields) -> int | None:
    """How many likely tokens are reported beside each; None for no report at all."""
    most = fields.integer("top_logprobs", low=0, high=MAX_TOP_LOGPROBS)
    included = fields.members.get("include")
    wanted = isinstance(included, list) and "message.output_text.logprobs" in included
    return (most or 0) if most or wanted else None
