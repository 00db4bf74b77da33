"""The Anthropic Messages dialect: reads a request body, and words errors as its clients expect them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.chat.pieces import call_id
from engine.chat.request import ChatRequest
from engine.chat.thinking import read_thinking
from engine.chat.tools import read_choice, read_response_schema, read_tools
from engine.errors import ContextLengthError, EngineError
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
from engine.server.dialects.anthropic_events import MessageWriter
from engine.server.dialects.anthropic_messages import openai_choice, openai_tools, read_conversation
from engine.server.dialects.dialect import Defaults, Envelope
from engine.server.fields import Fields

ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}


@dataclass(frozen=True, slots=True)
class AnthropicMessages:
    """POST /v1/messages."""

    surface: str = "anthropic_messages"
    prompt_member: str = "messages"

    def read(self, body: Mapping[str, object], defaults: Defaults) -> Ask:
        """Check a body and read it; raises RequestError naming the member that is wrong."""
        fields = Fields(body)
        conversation = read_conversation(body)
        thinking = read_thinking(body, default=defaults.thinking)
        spoken: dict[str, object] = {
            "tools": openai_tools(body),
            "tool_choice": openai_choice(body),
        }
        tools = read_tools(spoken)
        form, member = _format(fields)
        chat = ChatRequest(
            system=conversation.system,
            turns=conversation.turns,
            tools=tuple(tool.schema for tool in tools),
            thinking=thinking.on,
            effort=thinking.effort,
            response_schema=read_response_schema(form, member, flat=True),
        )
        return Ask(
            prompt=chat,
            tools=tools,
            choice=read_choice(spoken, tools),
            sampling=read_sampling(fields, defaults.sampling),
            model=read_model(fields),
            stream=flag(fields, "stream", default=False),
            max_tokens=read_budget(fields, "max_tokens"),
            seed=read_seed(fields),
            stops=read_stops(fields, "stop_sequences"),
            cache=read_cache(fields),
            parallel_calls=not _one_call(body.get("tool_choice")),
            new_call_id=functools.partial(call_id, "toolu_"),
            format_member=member,
        )

    def writer(self, _: Mapping[str, object], __: Ask, envelope: Envelope) -> MessageWriter:
        """Writes one message."""
        return MessageWriter(envelope)


def _one_call(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    return flag(Fields(choice, "tool_choice"), "disable_parallel_tool_use", default=False)


def _format(fields: Fields) -> tuple[object, str]:
    """The format of the answer, and where it stands: an older spelling is one member."""
    form = fields.nested("output_config").members.get("format")
    old = fields.members.get("output_format")
    return (old, "output_format") if form is None and old is not None else (form, "output_config.format")


def error_body(error: EngineError, *, request_id: str) -> dict[str, Any]:
    """The error object of this family; never a path of ours or a stack."""
    message = str(error)
    extra: dict[str, Any] = {}
    if isinstance(error, ContextLengthError):  # agents look for this very wording
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.context_tokens} maximum"
        extra = {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context_tokens}
    body = {"type": error_type(error), "message": message, **extra}
    return {"type": "error", "error": body, "request_id": request_id}


def error_type(error: EngineError) -> str:
    """What this family calls the kind of an error."""
    if error.status >= 500:
        return "overloaded_error" if error.status == 503 else "api_error"
    return ERROR_TYPES.get(error.status, "invalid_request_error")
