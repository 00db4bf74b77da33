"""Forced calls and formats through every surface, whole and streamed, with a model that would rather chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from engine.tests.server.live import Live, Script, live_server

ASK: list[Any] = [{"role": "user", "content": "Hi"}]
PICK = {
    "name": "pick",
    "parameters": {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}, "count": {"enum": [1, 22]}},
        "required": ["colour", "count"],
    },
}
CHAT_TOOL = {"type": "function", "function": PICK}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}
CHAT_FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
UNKEPT = {"type": "string", "pattern": "(?<=a)b"}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("I think so.</think>I would rather chat.")) as running:
        yield running


def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="k", max_retries=0)


def chat(live: Live, **asked: Any) -> Any:
    """One chat completion, or all chunks of its stream."""
    with client(live) as connection:
        create: Any = connection.chat.completions.create
        answer = create(model="m", messages=ASK, **asked)
        return list(answer) if asked.get("stream") else answer


def check_arguments(arguments: str) -> None:
    found = json.loads(arguments)

    assert found["colour"] in ("red", "blue")
    assert found["count"] in (1, 22)


def check_json(text: str) -> None:
    found = json.loads(text)

    assert {"ok", "kind"} == set(found)
    assert isinstance(found["ok"], bool)
    assert found["kind"] in ("a", "b")


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "pick"}}])
def test_chat_makes_the_call_that_is_required(live: Live, choice: Any, thinking: bool) -> None:
    answer = chat(
        live,
        tools=[CHAT_TOOL],
        tool_choice=choice,
        parallel_tool_calls=False,
        extra_body={"thinking": thinking},
    )
    [call] = answer.choices[0].message.tool_calls or []

    assert ("tool_calls", None) == (answer.choices[0].finish_reason, answer.choices[0].message.content)
    assert ("I think so." if thinking else None) == getattr(
        answer.choices[0].message, "reasoning_content", None
    )
    assert "pick" == call.function.name
    check_arguments(call.function.arguments)


def test_a_streamed_forced_call_is_the_whole_one(live: Live) -> None:
    asked: Any = {"tools": [CHAT_TOOL], "tool_choice": "required", "seed": 3, "parallel_tool_calls": False}
    whole, chunks = chat(live, **asked), chat(live, stream=True, **asked)
    pieces = [
        call.function.arguments
        for chunk in chunks
        for call in (chunk.choices[0].delta.tool_calls or ())
        if call.function
    ]

    assert whole.choices[0].message.tool_calls[0].function.arguments == "".join(pieces)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_answers_in_the_schema(live: Live, stream: bool) -> None:
    answer = chat(live, response_format=CHAT_FORMAT, temperature=1.5, stream=stream)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
    else:
        text = answer.choices[0].message.content

    check_json(text)


def test_responses_make_the_call_and_keep_the_format(live: Live) -> None:
    with client(live) as connection:
        create: Any = connection.responses.create
        called = create(
            model="m",
            input="Hi",
            tools=[{"type": "function", **PICK}],
            tool_choice="required",
            parallel_tool_calls=False,
        )
        formed = create(
            model="m",
            input="Hi",
            text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
        )
    [call] = [item for item in called.output if item.type == "function_call"]

    check_arguments(call.arguments)
    check_json(formed.output_text)


def test_messages_make_the_call_of_any_or_of_the_named_tool(live: Live) -> None:
    tool = {"name": "pick", "input_schema": PICK["parameters"]}
    with anthropic.Anthropic(base_url=live.base_url, api_key="k", max_retries=0) as connection:
        for choice in ({"type": "any"}, {"type": "tool", "name": "pick"}):
            create: Any = connection.messages.create
            message = create(
                model="m",
                max_tokens=500,
                messages=ASK,
                tools=[tool],
                tool_choice={**choice, "disable_parallel_tool_use": True},
            )
            [call] = [block for block in message.content if block.type == "tool_use"]

            assert "tool_use" == message.stop_reason
            check_arguments(json.dumps(call.input))


@pytest.mark.parametrize(
    ("path", "body", "member"),
    [
        pytest.param(
            "chat/completions",
            {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"schema": UNKEPT}}},
            "response_format",
            id="chat",
        ),
        pytest.param(
            "responses",
            {"input": "Hi", "text": {"format": {"type": "json_schema", "schema": UNKEPT}}},
            "text.format",
            id="responses",
        ),
        pytest.param(
            "messages",
            {
                "messages": ASK,
                "max_tokens": 5,
                "output_config": {"format": {"type": "json_schema", "schema": UNKEPT}},
            },
            "output_config.format",
            id="messages",
        ),
        pytest.param(
            "messages",
            {"messages": ASK, "output_format": {"type": "json_schema", "schema": UNKEPT}},
            "output_format",
            id="messages_old_spelling",
        ),
        pytest.param(
            "messages",
            {"messages": ASK, "output_config": {"format": {"type": "json_schema", "schema": 3}}},
            "output_config.format.schema",
            id="no_schema",
        ),
        pytest.param(
            "responses",
            {
                "input": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}],
                "reasoning": {"effort": "none"},
                "text": {"format": {"type": "json_object"}},
            },
            "input",
            id="begun_otherwise",
        ),
        pytest.param(
            "chat/completions",
            {
                "messages": ASK,
                "tools": [CHAT_TOOL],
                "tool_choice": {"type": "function", "function": {"name": "x"}},
            },
            "tool_choice",
            id="unknown_tool",
        ),
    ],
)
def test_a_form_that_cannot_be_kept_is_refused_by_the_name_that_its_client_gave_it(
    live: Live, path: str, body: dict[str, Any], member: str
) -> None:
    answer = httpx2.post(f"{live.base_url}/v1/{path}", json=body, timeout=30, verify=False)
    error = answer.json()["error"]

    assert 400 == answer.status_code
    assert len(answer.text) < 500
    assert member == error.get("param", member)
    assert member in error["message"] or member == "input"


def test_forced_tokens_are_counted_and_carried_by_their_ids(live: Live) -> None:
    body = {
        "messages": ASK,
        "tools": [CHAT_TOOL],
        "tool_choice": "required",
        "return_token_ids": True,
        "parallel_tool_calls": False,
    }
    answer = httpx2.post(f"{live.base_url}/v1/chat/completions", json=body, timeout=30, verify=False).json()
    text = live.service.tokenizer.decode(answer["choices"][0]["token_ids"])

    assert len(answer["choices"][0]["token_ids"]) == answer["usage"]["completion_tokens"]
    assert text.startswith('I think so.</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="pick">\n')
