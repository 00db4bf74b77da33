"""POST /v1/messages: blocks, events and errors as the Anthropic client needs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from engine.chat.template import render
from engine.core import SamplingParams
from engine.server.dialects.anthropic import AnthropicMessages
from engine.server.dialects.dialect import Defaults
from engine.server.dialects.openai import OpenAIChat
from engine.tests.server.live import CONTEXT, Live, Script, live_server
from engine.tests.server.test_openai import BLOCK
from engine.tests.server.wire import Event, post, stream

PATH = "/v1/messages"
ASK: list[Any] = [{"role": "user", "content": "Hi"}]
TOOL: dict[str, Any] = {
    "name": "bash",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}
WEATHER = {
    "name": "get_weather",
    "description": "Weather for a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}


@pytest.fixture(scope="module")
def thinker() -> Iterator[Live]:
    with live_server(Script("Let me see.</think>It is 4 🎉 café.")) as live:
        yield live


@pytest.fixture(scope="module")
def caller() -> Iterator[Live]:
    with live_server(Script(f"I look.</think>Working.{BLOCK}")) as live:
        yield live


def client(live: Live, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=live.base_url, api_key="anything", max_retries=0, **options)


def names(events: list[Event]) -> list[str]:
    """Event names with the type of the block or delta, runs of the same joined."""
    found: list[str] = []
    for event in events:
        inner = event.data.get("content_block") or event.data.get("delta") or {}
        name = f"{event.name} {inner.get('type', '')}".strip()
        if not found or found[-1] != name:
            found.append(name)
    return found


def test_thinking_and_text_are_blocks_of_their_own(thinker: Live) -> None:
    with client(thinker) as connection:
        message = connection.messages.create(model="m", max_tokens=100, messages=ASK)
    thought, said = message.content

    assert ("thinking", "Let me see.") == (thought.type, getattr(thought, "thinking", None))
    assert ("text", "It is 4 🎉 café.") == (said.type, getattr(said, "text", None))
    assert ("end_turn", None, "m") == (message.stop_reason, message.stop_sequence, message.model)
    assert message.id.startswith("msg_")
    assert getattr(thought, "signature", "")


def test_the_client_puts_a_stream_together(thinker: Live) -> None:
    with client(thinker) as connection:
        with connection.messages.stream(model="m", max_tokens=100, messages=ASK) as events:
            text = "".join(events.text_stream)
            message = events.get_final_message()
        whole = connection.messages.create(model="m", max_tokens=100, messages=ASK)

    assert "It is 4 🎉 café." == text
    assert [b.model_dump(exclude={"signature"}) for b in whole.content] == [
        b.model_dump(exclude={"signature"}) for b in message.content
    ]
    assert whole.stop_reason == message.stop_reason
    assert whole.usage.output_tokens == message.usage.output_tokens


def test_the_events_of_a_tool_call_come_in_order(caller: Live) -> None:
    events = stream(caller, PATH, {"messages": ASK, "tools": [TOOL]})
    order = names(events)
    last = events[-2].data

    assert [
        "message_start",
        "ping",
        "content_block_start thinking",
        "content_block_delta thinking_delta",
        "content_block_delta signature_delta",
        "content_block_stop",
        "content_block_start text",
        "content_block_delta text_delta",
        "content_block_stop",
        "content_block_start tool_use",
        "content_block_delta input_json_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ] == order
    assert all(event.name == event.data["type"] for event in events)
    assert [0, 1, 2] == [e.data["index"] for e in events if e.name == "content_block_start"]
    assert None is events[0].data["message"]["stop_reason"]
    assert ("tool_use", None) == (last["delta"]["stop_reason"], last["delta"]["stop_sequence"])
    assert last["timings"]["decode_tokens"] > 0
    fragments = [e.data["delta"]["partial_json"] for e in events if "partial_json" in e.data.get("delta", {})]
    assert {"command": "ls && pwd"} == json.loads("".join(fragments))


def test_a_tool_call_reaches_the_client(caller: Live) -> None:
    with client(caller) as connection:
        message = connection.messages.create(model="m", max_tokens=400, messages=ASK, tools=[TOOL])  # type: ignore[list-item]
        with connection.messages.stream(model="m", max_tokens=400, messages=ASK, tools=[TOOL]) as events:  # type: ignore[list-item]
            streamed = events.get_final_message()
    call: Any = message.content[-1]
    same: Any = streamed.content[-1]

    assert ("tool_use", "bash", {"command": "ls && pwd"}) == (message.stop_reason, call.name, call.input)
    assert call.id.startswith("toolu_")
    assert (call.name, call.input) == (same.name, same.input)


def test_counts_of_the_prompt_add_up_and_stand_at_the_start(thinker: Live) -> None:
    ask = [{"role": "user", "content": "A question of its own."}]
    first = stream(thinker, PATH, {"messages": ask})
    again = stream(thinker, PATH, {"messages": ask})
    starts = [events[0].data["message"]["usage"] for events in (first, again)]
    total = [
        u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"] for u in starts
    ]

    assert total[0] == total[1]
    assert starts[1]["cache_read_input_tokens"] == total[1] - 1
    assert starts[1].items() - {"output_tokens": 0}.items() <= again[-2].data["usage"].items()
    assert len("Let me see.") == again[-2].data["usage"]["output_tokens_details"]["thinking_tokens"]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param({"max_tokens": 5}, "max_tokens", id="budget"),
        pytest.param({"max_tokens": 0}, "max_tokens", id="no_budget"),
        pytest.param({}, "end_turn", id="absent_budget"),
        pytest.param({"stop_sequences": ["4 "]}, "stop_sequence", id="stop"),
    ],
)
def test_the_reason_of_the_end_is_told(thinker: Live, members: dict[str, Any], reason: str) -> None:
    message = post(thinker, PATH, {"messages": ASK, **members}).json()
    events = stream(thinker, PATH, {"messages": ASK, **members})

    assert reason == message["stop_reason"] == events[-2].data["delta"]["stop_reason"]
    assert ("4 " if reason == "stop_sequence" else None) == message["stop_sequence"]
    assert "text" in {block["type"] for block in message["content"]}


def test_a_full_context_is_told_apart_from_a_budget() -> None:
    with live_server(Script("</think>" + "word " * 2000)) as live:
        ask = [{"role": "user", "content": "x" * (CONTEXT - 40)}]
        full = post(live, PATH, {"messages": ask, "max_tokens": 9999}).json()
        budget = post(live, PATH, {"messages": ask, "max_tokens": 3}).json()

    assert "model_context_window_exceeded" == full["stop_reason"]
    assert "max_tokens" == budget["stop_reason"]


def test_thinking_that_is_disabled_gives_no_thinking_block() -> None:
    with live_server(Script("Plain.")) as live:
        message = post(live, PATH, {"messages": ASK, "thinking": {"type": "disabled"}}).json()

    assert [{"type": "text", "text": "Plain."}] == message["content"]


def test_history_renders_the_same_bytes_as_in_the_other_dialect() -> None:
    defaults = Defaults(SamplingParams())
    mine = AnthropicMessages().read(
        {
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: a=b; cch=1;"},
                {"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}},
            ],
            "messages": [
                {"role": "user", "content": "w?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "need tool", "signature": "z"},
                        {"type": "redacted_thinking", "data": "zz"},
                        {
                            "type": "tool_use",
                            "id": "t1",
                            "name": "get_weather",
                            "input": {"city": "Rome", "days": 2},
                        },
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "is_error": True,
                            "content": [{"type": "text", "text": '{"t": 22}'}],
                        }
                    ],
                },
            ],
            "tools": [WEATHER, {"type": "web_search_20250305", "name": "web_search"}],
        },
        defaults,
    )
    arguments = '{"city": "Rome", "days": 2}'
    function = {"name": "get_weather", "arguments": arguments}
    schema = {k: v for k, v in WEATHER.items() if k != "input_schema"} | {
        "parameters": WEATHER["input_schema"]
    }
    other = OpenAIChat().read(
        {
            "messages": [
                {"role": "system", "content": "S"},
                {"role": "user", "content": "w?"},
                {
                    "role": "assistant",
                    "reasoning_content": "need tool",
                    "tool_calls": [{"id": "t1", "function": function}],
                },
                {"role": "tool", "tool_call_id": "t1", "content": '{"t": 22}'},
            ],
            "tools": [{"type": "function", "function": schema}],
        },
        defaults,
    )

    assert render(other.prompt) == render(mine.prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        pytest.param({}, "messages", id="no_messages"),
        pytest.param({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role", id="role"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages.0.content.0",
            id="image",
        ),
        pytest.param({"messages": ASK, "system": 3}, "system", id="system"),
        pytest.param({"messages": ASK, "tools": [{"input_schema": {}}]}, "tools.0.name", id="tool"),
        pytest.param({"messages": ASK, "tool_choice": {"type": "x"}}, "tool_choice.type", id="choice"),
        pytest.param({"messages": ASK, "temperature": 3}, "temperature", id="temperature"),
        pytest.param(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "toolu_x", "content": "1"}],
                    }
                ]
            },
            "messages",
            id="orphan_result",
        ),
    ],
)
def test_a_wrong_body_is_refused_in_this_familys_shape(
    thinker: Live, body: dict[str, Any], where: str
) -> None:
    answer = post(thinker, PATH, body)
    error = answer.json()

    assert (400, "error") == (answer.status_code, error["type"])
    assert "invalid_request_error" == error["error"]["type"]
    assert error["error"]["message"].startswith(where)
    assert answer.headers["x-request-id"] == error["request_id"]


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_agents_know(thinker: Live) -> None:
    error = post(thinker, PATH, {"messages": [{"role": "user", "content": "x" * 4000}]}).json()["error"]

    assert f"prompt is too long: {error['n_prompt_tokens']} tokens > {CONTEXT} maximum" == error["message"]


def test_errors_are_the_exceptions_of_the_client(thinker: Live) -> None:
    with client(thinker) as connection:
        with pytest.raises(anthropic.BadRequestError):
            connection.messages.create(model="m", max_tokens=-1, messages=ASK)
        counted = connection.messages.count_tokens(model="m", messages=ASK)
    with (
        live_server(api_key="s3cret") as locked,
        client(locked) as connection,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        connection.messages.create(model="m", max_tokens=1, messages=ASK)

    assert counted.input_tokens > 3
    assert "authentication_error" in str(caught.value.body)
