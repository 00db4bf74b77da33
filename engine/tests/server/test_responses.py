"""POST /v1/responses: items and events as the openai client and Codex need them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.chat.template import render
from engine.core import SamplingParams
from engine.server.dialects.dialect import Defaults
from engine.server.dialects.openai import OpenAIChat
from engine.server.dialects.responses import OpenAIResponses
from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.test_openai import BLOCK
from engine.tests.server.wire import Event, post, stream

PATH = "/v1/responses"
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}
PATCH = (
    '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="apply_patch">\n'
    '<｜DSML｜parameter name="input" string="true">*** Begin\n"a"</｜DSML｜parameter>\n'
    '</｜DSML｜invoke>\n<｜DSML｜invoke name="mcp__fsread">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
)


@pytest.fixture(scope="module")
def thinker() -> Iterator[Live]:
    with live_server(Script("Let me see.</think>It is 4 🎉 café.")) as live:
        yield live


@pytest.fixture(scope="module")
def caller() -> Iterator[Live]:
    with live_server(Script(f"I look.</think>Working.{BLOCK}")) as live:
        yield live


def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="anything", max_retries=0)


def names(events: list[Event]) -> list[str]:
    """Event names, runs of the same joined."""
    return [e.name for i, e in enumerate(events) if i == 0 or events[i - 1].name != e.name]


def test_the_client_reads_a_whole_response(thinker: Live) -> None:
    with client(thinker) as connection:
        response = connection.responses.create(model="m", input="Hi")

    assert ("It is 4 🎉 café.", "completed") == (response.output_text, response.status)
    assert ["message"] == [item.type for item in response.output]
    assert response.usage is not None
    assert len("Let me see.") == response.usage.output_tokens_details.reasoning_tokens


def test_reasoning_is_shown_only_on_demand_and_comes_back_sealed(thinker: Live) -> None:
    body = {"input": "Hi", "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    first = post(thinker, PATH, body).json()
    back = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "And?"}]
    defaults = Defaults(SamplingParams())
    tool = {"tools": [TOOL]}
    ours = OpenAIResponses().read({"input": back, **tool}, defaults)
    chat = OpenAIChat().read(
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": "It is 4 🎉 café.",
                    "reasoning_content": "Let me see.",
                },
                {"role": "user", "content": "And?"},
            ],
            "tools": [{"type": "function", "function": {k: TOOL[k] for k in ("name", "parameters")}}],
        },
        defaults,
    )

    assert ["reasoning", "message"] == [item["type"] for item in first["output"]]
    assert "Let me see." == first["output"][0]["summary"][0]["text"]
    assert render(chat.prompt) == render(ours.prompt)  # type: ignore[arg-type]


def test_the_events_of_a_tool_call_come_in_order(caller: Live) -> None:
    events = stream(caller, PATH, {"input": "Hi", "tools": [TOOL], "reasoning": {"summary": "auto"}})
    final = events[-1].data["response"]

    assert [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ] == names(events)
    assert list(range(len(events))) == [event.data["sequence_number"] for event in events]
    assert ["reasoning", "message", "function_call"] == [item["type"] for item in final["output"]]
    assert '{"command": "ls && pwd"}' == final["output"][2]["arguments"]
    assert all(
        {"item_id", "output_index"} <= event.data.keys() for event in events if event.name.endswith("delta")
    )
    assert final["timings"]["ttft_ms"] >= 0


def test_the_client_puts_a_stream_together(caller: Live) -> None:
    with (
        client(caller) as connection,
        connection.responses.stream(model="m", input="Hi", tools=[TOOL]) as events,  # type: ignore[list-item]
    ):
        kinds = [event.type for event in events]
        response = events.get_final_response()
    call: Any = response.output[-1]

    assert "response.completed" == kinds[-1]
    assert ("bash", '{"command": "ls && pwd"}') == (call.name, call.arguments)
    assert call.call_id.startswith("call_")


def test_custom_and_namespaced_tools_keep_their_own_form() -> None:
    tools = [
        {"type": "custom", "name": "apply_patch", "description": "Edits files"},
        {"type": "namespace", "name": "mcp__fs", "tools": [{"type": "function", "name": "read"}]},
        {"type": "web_search"},
    ]
    with live_server(Script(f"</think>{PATCH}")) as live:
        output = post(live, PATH, {"input": "Hi", "tools": tools}).json()["output"]
        events = stream(live, PATH, {"input": "Hi", "tools": tools})
    given = [event.data for event in events if event.name == "response.custom_tool_call_input.done"]

    assert ["custom_tool_call", "function_call"] == [item["type"] for item in output]
    assert ("apply_patch", '*** Begin\n"a"') == (output[0]["name"], output[0]["input"])
    assert ("read", "mcp__fs", "{}") == (output[1]["name"], output[1]["namespace"], output[1]["arguments"])
    assert ['*** Begin\n"a"'] == [data["input"] for data in given]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_budget_makes_it_incomplete(thinker: Live, streaming: bool) -> None:
    body = {"input": "Hi", "max_output_tokens": 20}
    if streaming:
        events = stream(thinker, PATH, body)
        response = events[-1].data["response"]
        assert "response.incomplete" == events[-1].name
    else:
        response = post(thinker, PATH, body).json()

    assert ("incomplete", {"reason": "max_output_tokens"}) == (
        response["status"],
        response["incomplete_details"],
    )
    assert "incomplete" == response["output"][-1]["status"]


def test_late_developer_messages_stay_in_place_and_results_are_ordered() -> None:
    defaults = Defaults(SamplingParams())
    ours = OpenAIResponses().read(
        {
            "instructions": "S",
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]},
                {"role": "user", "content": "do"},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "r"}]},
                {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command":"a"}'},
                {"type": "function_call", "call_id": "c2", "name": "bash", "arguments": '{"command":"b"}'},
                {"type": "function_call_output", "call_id": "c2", "output": "B"},
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": [{"type": "input_text", "text": "A"}, {"type": "input_image"}],
                },
                {"role": "developer", "content": "late"},
            ],
        },
        defaults,
    )
    calls = [
        {"id": f"c{n}", "function": {"name": "bash", "arguments": f'{{"command":"{c}"}}'}}
        for n, c in ((1, "a"), (2, "b"))
    ]
    chat = OpenAIChat().read(
        {
            "messages": [
                {"role": "system", "content": "S"},
                {"role": "developer", "content": "D"},
                {"role": "user", "content": "do"},
                {"role": "assistant", "reasoning_content": "r", "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": "A\n\n[Unsupported input_image]"},
                {"role": "tool", "tool_call_id": "c2", "content": "B"},
                {"role": "system", "content": "late"},
            ]
        },
        defaults,
    )

    assert render(chat.prompt) == render(ours.prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"n": 2}, "n"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input.0.name"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0"),
        ({"input": [{"type": "function_call_output", "call_id": "zz", "output": "x"}]}, "input"),
        ({"input": [{"type": "reasoning", "status": "in_progress"}]}, "input.0.status"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
    ],
)
def test_what_it_cannot_do_is_refused_by_its_path(thinker: Live, members: dict[str, Any], param: str) -> None:
    answer = post(thinker, PATH, {"input": "Hi", **members})

    assert 400 == answer.status_code
    assert param == answer.json()["error"]["param"]


@pytest.mark.parametrize("asked", [{"top_logprobs": 2}, {"include": ["message.output_text.logprobs"]}])
def test_probabilities_cover_the_text_and_nothing_else(thinker: Live, asked: dict[str, Any]) -> None:
    body = {"input": "Hi", "temperature": 0, **asked}
    whole = post(thinker, PATH, body).json()["output"][0]["content"][0]
    events = [event.data for event in stream(thinker, PATH, body)]
    deltas = [data for data in events if data["type"] == "response.output_text.delta"]
    [done] = [data for data in events if data["type"] == "response.output_text.done"]
    told = [token for delta in deltas for token in delta["logprobs"]]
    final = events[-1]["response"]["output"][0]["content"][0]

    assert "It is 4 🎉 caf\u00e9." == b"".join(bytes(token["bytes"]) for token in told).decode()
    assert whole["logprobs"] == told == done["logprobs"] == final["logprobs"]
    assert {asked.get("top_logprobs", 0)} == {len(token["top_logprobs"]) for token in told}
    assert all(token["logprob"] <= 0 for token in told)


def test_the_client_reads_probabilities(thinker: Live) -> None:
    with client(thinker) as connection:
        response = connection.responses.create(model="m", input="Hi", top_logprobs=1)
    output: Any = response.output
    part = output[0].content[0]

    assert part.text.encode() == b"".join(bytes(token.bytes) for token in part.logprobs)
    assert 1 == response.top_logprobs


def test_probabilities_of_calls_are_not_told_as_text(caller: Live) -> None:
    body = {"input": "Hi", "tools": [TOOL], "top_logprobs": 1}
    [text, _] = post(caller, PATH, body).json()["output"]
    tokens = text["content"][0]["logprobs"]

    assert "Working." == text["content"][0]["text"] == b"".join(bytes(t["bytes"]) for t in tokens).decode()


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        pytest.param('"a\\ud800b"', "a\ufffdb", id="half_a_character"),
        pytest.param("1" + "0" * 77, 10**77, id="beyond_64_bits"),
    ],
)
def test_what_clients_said_is_repeated_whatever_it_was(thinker: Live, sent: str, echoed: object) -> None:
    tool = {**TOOL, "parameters": {"type": "object", "properties": {}, "default": "@"}}
    body = json.dumps({"input": "Hi", "metadata": {"key": "@"}, "tools": [tool]}).replace('"@"', sent)
    whole = post(thinker, PATH, body.encode())
    streamed = stream(thinker, PATH, json.loads(body))[-1].data["response"]

    assert 200 == whole.status_code
    assert [echoed] * 2 == [answer["metadata"]["key"] for answer in (whole.json(), streamed)]
    assert echoed == whole.json()["tools"][0]["parameters"]["default"]
