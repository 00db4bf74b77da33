"""GET /openapi.json: every path of this server, what its body may hold, and what comes back.

Bounds come from where they are checked.  Members that are ignored are not listed, and allowed all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.chat.thinking import EFFORTS, OFF_EFFORTS
from engine.server.ask import (
    MAX_CHOICES,
    MAX_MODEL_LENGTH,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    MAX_TOP_K,
    MAX_TOP_LOGPROBS,
    SEED_BOUND,
)
from engine.server.dialects.completions import MAX_LOGPROBS

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
SWITCH: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
OBJECT: Schema = {"type": "object"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(members: Mapping[str, Schema], *required: str) -> Schema:
    optional = {name: schema if name in required else _or_null(schema) for name, schema in members.items()}
    return {"type": "object", "properties": optional} | ({"required": list(required)} if required else {})


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


_STOPS = {"anyOf": [TEXT, _list({**TEXT, "maxLength": MAX_STOP_LENGTH}, maxItems=MAX_STOPS)]}
_TEXT_PART = _object({"type": {"const": "text"}, "text": TEXT}, "type", "text")
_CONTENT = {"anyOf": [TEXT, _list(_TEXT_PART)]}
_FUNCTION = _object({"name": {**TEXT, "minLength": 1}, "description": TEXT, "parameters": OBJECT}, "name")
_TOOL = _object({"type": {"const": "function"}, "function": _FUNCTION}, "type", "function")
_USER = _object({"role": {"enum": ["system", "developer", "user"]}, "content": _CONTENT}, "role", "content")
_ASSISTANT = _object({"role": {"const": "assistant"}, "content": _CONTENT, "reasoning_content": TEXT}, "role")
_RESULT = _object({"role": {"const": "tool"}, "tool_call_id": TEXT, "content": _CONTENT}, "role", "content")
_SAMPLING: Mapping[str, Schema] = {
    "model": {**TEXT, "maxLength": MAX_MODEL_LENGTH},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "top_k": {**COUNT, "maximum": MAX_TOP_K},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "seed": {"type": "integer", "minimum": -SEED_BOUND, "maximum": 2 * SEED_BOUND - 1},
    "stream": SWITCH,
    "cache_prompt": SWITCH,
}
_EFFORT: Schema = {"enum": [*OFF_EFFORTS, *EFFORTS]}
_COMMON: Mapping[str, Schema] = {
    **_SAMPLING,
    "n": {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES},
    "max_tokens": COUNT,
    "stream_options": _object({"include_usage": SWITCH}),
    "stop": _STOPS,
    "return_token_ids": SWITCH,
}
_CHAT = _object(
    {
        **_COMMON,
        "messages": _list({"anyOf": [_USER, _ASSISTANT, _RESULT]}, minItems=1),
        "max_completion_tokens": COUNT,
        "tools": _list(_TOOL),
        "tool_choice": {"enum": ["auto", "none"]},
        "parallel_tool_calls": SWITCH,
        "logprobs": SWITCH,
        "reasoning_effort": _EFFORT,
        "enable_thinking": SWITCH,
        "think": SWITCH,
    },
    "messages",
)
_COMPLETION = _object(
    {
        **_COMMON,
        "prompt": {"anyOf": [TEXT, _list(COUNT, minItems=1)]},
        "logprobs": {**COUNT, "maximum": MAX_LOGPROBS},
        "chat_wrap": SWITCH,
    },
    "prompt",
)
_BLOCKS = {"anyOf": [TEXT, _list(_TEXT_PART, minItems=1)]}
_MESSAGES: Mapping[str, Schema] = {
    "messages": _list(
        _object({"role": {"enum": ["user", "assistant"]}, "content": _BLOCKS}, "role", "content"), minItems=1
    ),
    "model": _SAMPLING["model"],
    "system": _BLOCKS,
    "tools": _list(
        _object({"name": {**TEXT, "minLength": 1}, "description": TEXT, "input_schema": OBJECT}, "name")
    ),
    "tool_choice": _object({"type": {"enum": ["auto", "none"]}}, "type"),
    "thinking": _object({"type": {"enum": ["enabled", "adaptive", "disabled"]}}, "type"),
    "output_config": _object({"effort": _EFFORT}),
}
_MESSAGE = _object(
    {**_SAMPLING, **_MESSAGES, "max_tokens": COUNT, "stop_sequences": _STOPS["anyOf"][1]}, "messages"
)
_ITEM = _object(
    {
        "type": {"const": "message"},
        "role": {"enum": ["user", "assistant", "developer", "system"]},
        "content": TEXT,
    },
    "role",
    "content",
)
_RESPONSE = _object(
    {
        **_SAMPLING,
        "input": {"anyOf": [TEXT, _list(_ITEM, minItems=1)]},
        "instructions": TEXT,
        "max_output_tokens": COUNT,
        "tools": _list(
            _object({"type": {"const": "function"}, "name": {**TEXT, "minLength": 1}}, "type", "name")
        ),
        "tool_choice": {"enum": ["auto", "none"]},
        "parallel_tool_calls": SWITCH,
        "reasoning": _object({"effort": _EFFORT, "summary": {"enum": ["auto", "concise", "detailed"]}}),
        "include": _list(TEXT),
        "top_logprobs": {**COUNT, "maximum": MAX_TOP_LOGPROBS},
    },
    "input",
)
_TOKENIZE = _object({"messages": _CHAT["properties"]["messages"], "prompt": TEXT, "content": TEXT})
_DETOKENIZE = _object({"tokens": _list(COUNT)}, "tokens")
_OPENAI_ERROR = _object(
    {"error": _object({"message": TEXT, "type": TEXT, "param": TEXT, "code": TEXT}, "message", "type")},
    "error",
)
_ANTHROPIC_ERROR = _object(
    {
        "type": {"const": "error"},
        "error": _object({"type": TEXT, "message": TEXT}, "type", "message"),
        "request_id": TEXT,
    },
    "type",
    "error",
    "request_id",
)
_REFUSALS = {
    "400": "The request is wrong; `param` names the member.",
    "401": "The API key is missing or wrong.",
    "408": "The body did not come in time; send it again, faster.",
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "503": "No room now, or still loading; `Retry-After` says when to try again.",
}
# path: what it does, the schema of its body, and of its answer
POSTS: Mapping[str, tuple[str, Schema, Schema]] = {
    "/v1/chat/completions": ("OpenAI chat", _CHAT, _object({"choices": _list(OBJECT)}, "choices")),
    "/v1/completions": (
        "OpenAI text completion",
        _COMPLETION,
        _object({"choices": _list(OBJECT)}, "choices"),
    ),
    "/v1/responses": ("OpenAI Responses, stateless", _RESPONSE, _object({"output": _list(OBJECT)}, "output")),
    "/v1/messages": ("Anthropic Messages", _MESSAGE, _object({"content": _list(OBJECT)}, "content")),
    "/v1/messages/count_tokens": (
        "Prompt tokens of a message",
        _object(_MESSAGES, "messages"),
        _object({"input_tokens": COUNT}, "input_tokens"),
    ),
    "/tokenize": ("Count and ids of a text or chat", _TOKENIZE, _object({"count": COUNT}, "count")),
    "/detokenize": ("Text of ids", _DETOKENIZE, _object({"content": TEXT}, "content")),
}
GETS: Mapping[str, tuple[str, str]] = {
    "/v1/models": ("The loaded model", "application/json"),
    "/v1/models/{model}": ("The loaded model by its id or an alias", "application/json"),
    "/v1/stats": ("Numbers for a person, or as JSON", "text/plain"),
    "/metrics": ("Numbers in the Prometheus text format", "text/plain"),
    "/health": ("Whether requests are taken", "application/json"),
    "/healthz": ("Whether requests are taken", "application/json"),
    "/openapi.json": ("This description", "application/json"),
}


def describe(version: str) -> dict[str, Any]:
    """The description as one JSON object."""
    paths: dict[str, Any] = {path: {"post": _post(path, *parts)} for path, parts in POSTS.items()}
    for path, (summary, media) in GETS.items():
        paths[path] = {"get": _get(path, summary, media)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "sparkgate", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _post(path: str, summary: str, body: Schema, answer: Schema) -> dict[str, Any]:
    contents: dict[str, Any] = {"application/json": {"schema": answer}}
    if "stream" in body["properties"]:
        contents["text/event-stream"] = {"schema": _object({"data": TEXT, "event": TEXT})}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": {"description": "The answer", "content": contents}, **_refusals(path)},
    }


def _get(path: str, summary: str, media: str) -> dict[str, Any]:
    contents: dict[str, Any] = {media: {"schema": {}}} | (
        {"application/json": {"schema": {}}} if path == "/v1/stats" else {}
    )
    found: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": contents}, **_refusals(path)},
    }
    if "{model}" in path:
        found["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": TEXT}]
        found["responses"]["404"] = {**found["responses"]["400"], "description": "Not loaded."}
    return found


def _refusals(path: str) -> dict[str, Any]:
    schema = _ANTHROPIC_ERROR if path.startswith("/v1/messages") else _OPENAI_ERROR
    contents: dict[str, Any] = {
        "application/json": {"schema": schema if path not in ("/health", "/healthz") else OBJECT}
    }
    return {code: {"description": text, "content": contents} for code, text in _REFUSALS.items()}
