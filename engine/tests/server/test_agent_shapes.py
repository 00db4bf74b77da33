"""Requests in the shapes that agents and benchmarks send, in our own words, each answered as it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.wire import Event, get, post, stream

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages?beta=true"
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"command": {"type": "string"}, "background": {"type": "boolean", "default": False}},
    "required": ["command"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "Runs it.", "parameters": SCHEMA}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "notes.txt"}
SYSTEM = {"role": "system", "content": "You change files."}
TASK = {"role": "user", "content": "List the files."}
CACHED = {"cache_control": {"type": "ephemeral"}}

HERMES = {
    "model": "deepseek-v4-flash",
    "messages": [
        SYSTEM,
        TASK,
        {"role": "assistant", "content": None, "reasoning_content": "look", "tool_calls": [CALL]},
        RESULT,
    ],
    "tools": TOOLS,
    "tool_choice": "auto",
    "thinking": {"type": "enabled"},
    "reasoning": {"enabled": True, "effort": "medium"},
}
OPENCODE = {
    "model": "deepseek-chat",
    "max_tokens": 32000,
    "messages": [SYSTEM, TASK, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT],
    "tools": TOOLS,
    "tool_choice": "auto",
    "stream_options": {"include_usage": True},
}
OPENHANDS = {
    "model": "openai/local",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "You change files.", **CACHED}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "List "}, {"type": "text", "text": "files.", **CACHED}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": ""}], "tool_calls": [CALL]},
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "name": "bash",
            "content": [{"type": "text", "text": "x", **CACHED}],
        },
    ],
    "tools": TOOLS,
    "tool_choice": "auto",
    "temperature": 0.0,
    "top_p": 1.0,
    "seed": 42,
    "metadata": {"session": "s"},
    "stop": ["</function"],
}
PI = {
    "model": "local",
    "messages": [
        SYSTEM,
        TASK,
        {"role": "assistant", "content": "", "reasoning_content": " ", "tool_calls": [CALL]},
        RESULT,
    ],
    "tools": TOOLS,
    "max_tokens": 4096,
    "reasoning_effort": "xhigh",
    "stream_options": {"include_usage": True},
}
EVAL_BENCH = {
    "model": "local",
    "messages": [SYSTEM, TASK],
    "max_tokens": 4096,
    "temperature": 0.0,
    "tools": TOOLS,
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "chat_template_kwargs": {"enable_thinking": False},
}
BENCHY = {
    "model": "local",
    "messages": [{"role": "system", "content": "word " * 300}, TASK],
    "max_tokens": 64,
    "cache_prompt": False,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
}
CLAUDE_CODE = {
    "model": "claude-like",
    "max_tokens": 32000,
    "temperature": 1,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: v=1; cch=abc;"},
        {"type": "text", "text": "You change files.", **CACHED},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>Be careful.</system-reminder>"},
                {"type": "text", "text": "List.", **CACHED},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "look", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "t2", "name": "bash", "input": {"command": "pwd"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "x"}, {"type": "image", "source": {}}],
                },
            ],
        },
        {"role": "system", "content": "The plan changed."},
    ],
    "tools": [
        {"name": "bash", "description": "Runs it.", "input_schema": SCHEMA, **CACHED},
        {"type": "web_search_20260101", "name": "web_search"},
    ],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": []},
    "metadata": {"user_id": "u"},
}
CODEX = {
    "model": "local",
    "instructions": "You change files.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Sandbox is off."}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]},
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "bm90IG91cnM="},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Late note."}]},
    ],
    "tools": [
        {"type": "function", "name": "bash", "strict": False, "parameters": SCHEMA},
        {"type": "custom", "name": "apply_patch"},
        {"type": "web_search"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "client_metadata": {"a": "b"},
}
SHAPES = [
    pytest.param(CHAT, HERMES, id="hermes"),
    pytest.param(CHAT, OPENCODE, id="opencode"),
    pytest.param(CHAT, OPENHANDS, id="openhands"),
    pytest.param(CHAT, PI, id="pi"),
    pytest.param(CHAT, EVAL_BENCH, id="tool_eval_bench"),
    pytest.param(CHAT, BENCHY, id="llama_benchy"),
    pytest.param(MESSAGES, CLAUDE_CODE, id="claude_code"),
    pytest.param(RESPONSES, CODEX, id="codex"),
]  # fmt: skip


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("Hm.</think>There is one file.")) as running:
        yield running


@pytest.mark.parametrize(("path", "body"), SHAPES)
def test_the_shape_is_answered_whole_and_streamed(live: Live, path: str, body: dict[str, Any]) -> None:
    whole = post(live, path, body, **{"anthropic-version": "2023-06-01", "anthropic-beta": "a,b"})
    streamed = stream(live, path, body)

    assert 200 == whole.status_code, whole.text
    assert "There is one file." in whole.text
    assert not [event for event in streamed if event.name == "error" or "error" in _members(event)]


def _members(event: Event) -> set[str]:
    return (
        set(event.data) - {"response"} if isinstance(event.data, dict) and event.data.get("error") else set()
    )


def test_a_benchmark_sees_the_role_first_no_empty_usage_and_one_token_a_delta(live: Live) -> None:
    events = [event.data for event in stream(live, CHAT, BENCHY) if event.data != "[DONE]"]
    choices = [data["choices"][0] for data in events if data["choices"]]
    ids = [token for choice in choices for token in choice.get("token_ids", [])]

    assert {"role": "assistant", "content": ""} == choices[0]["delta"]
    assert [] == [data for data in events[:-1] if "usage" in data]
    assert events[-1]["usage"]["completion_tokens"] == len(ids)
    assert all(len(choice["token_ids"]) <= 2 for choice in choices[1:])


def test_a_bench_finds_the_limits_in_the_list_of_models(live: Live) -> None:
    (model,) = get(live, "/v1/models").json()["data"]

    assert model["max_model_len"] == model["context_window"] == model["context_length"] > 0
    assert "tools" in model["supported_parameters"]
