"""Tool calls over the wire: cut, broken, replayed, and sent back in every form that clients use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.wire import get, post, stream

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
ASK = [{"role": "user", "content": "Hi"}]
ODD = (
    '\n<｜DSML｜tool_calls>\n <｜DSML｜invoke name="bash">\n'
    '<｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="n" string="false">[1,2]</｜DSML｜parameter>'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


@pytest.fixture(scope="module")
def caller() -> Iterator[Live]:
    with live_server(Script(f"r</think>Working.{ODD}")) as live:
        yield live


@pytest.mark.parametrize("budget", [1, 3, 9, 12, 20, 50, 75, 90, 110, 150, 170, 190, 400])
def test_a_cut_call_is_never_said_to_be_whole(caller: Live, budget: int) -> None:
    body = {"messages": ASK, "tools": TOOLS, "max_tokens": budget}
    choice = post(caller, CHAT, body).json()["choices"][0]
    streamed = [e.data["choices"][0] for e in stream(caller, CHAT, body) if e.data != "[DONE]"]
    ends = [part["finish_reason"] for part in streamed if part["finish_reason"]]
    calls = choice["message"].get("tool_calls", [])

    assert [choice["finish_reason"]] == ends
    assert choice["finish_reason"] == ("tool_calls" if budget >= 190 else "length")
    assert calls or choice["finish_reason"] == "length"
    assert all(json.loads(call["function"]["arguments"]) for call in calls)


def test_a_call_that_breaks_off_is_an_error_in_the_stream_and_text_in_the_whole() -> None:
    broken = ODD[: ODD.index(">ls") + 2]
    with live_server(Script(f"r</think>Working.{broken}")) as live:
        body = {"messages": ASK, "tools": TOOLS}
        choice = post(live, CHAT, body).json()["choices"][0]
        last = stream(live, CHAT, body)[-1].data
        event = stream(live, MESSAGES, {"messages": ASK, "tools": [{"name": "bash", "input_schema": SCHEMA}]})

    assert "stop" == choice["finish_reason"]
    assert choice["message"]["content"].startswith(f"Working.{broken}")
    assert "tool_calls" not in choice["message"]
    assert "broken_tool_call" == last["error"]["code"]
    assert ("error", "api_error") == (event[-1].name, event[-1].data["error"]["type"])


def test_a_call_that_is_sent_back_continues_what_was_sampled(caller: Live) -> None:
    body: dict[str, Any] = {"messages": ASK, "tools": TOOLS}
    first = post(caller, CHAT, body).json()
    said = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "ok"}
    kept = post(caller, CHAT, {**body, "messages": [*ASK, said, result]}).json()["usage"]
    said["tool_calls"][0]["function"]["arguments"] = '{"command":"ls","n":[1,2]}'  # other blanks
    same = post(caller, CHAT, {**body, "messages": [*ASK, said, result]}).json()["usage"]
    said["tool_calls"][0]["id"] = result["tool_call_id"] = "call_unknown"
    other = post(caller, CHAT, {**body, "messages": [*ASK, said, result]}).json()["usage"]
    whole = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]

    assert whole - 1 <= kept["prompt_tokens_details"]["cached_tokens"]
    assert same["prompt_tokens"] == kept["prompt_tokens"] != other["prompt_tokens"]


def test_twelve_results_in_any_order_are_taken(caller: Live) -> None:
    calls = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "bash", "input": {"command": str(n)}}
        for n in range(12)
    ]
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": str(n)} for n in range(12)]
    shuffled = [results[(5 * n) % 12] for n in range(12)]
    bodies = [
        {"messages": [*ASK, {"role": "assistant", "content": calls}, {"role": "user", "content": order}]}
        for order in (results, shuffled)
    ]
    counts = [post(caller, f"{MESSAGES}/count_tokens", body).json()["input_tokens"] for body in bodies]
    usage = post(caller, MESSAGES, {**bodies[0], "max_tokens": 1}).json()["usage"]
    again = post(caller, MESSAGES, {**bodies[1], "max_tokens": 1}).json()["usage"]

    assert counts[0] == counts[1] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counts[0] - 1 == again["cache_read_input_tokens"]


def test_arguments_in_history_are_text_or_an_object(caller: Live) -> None:
    counts = []
    for arguments in ('{"command": "ls"}', {"command": "ls"}):
        call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        history = [
            *ASK,
            asked,
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        ]
        counts.append(post(caller, "/tokenize", {"messages": history}).json()["tokens"])

    assert counts[0] == counts[1]


def test_how_blocks_read_is_counted() -> None:
    body = {"messages": ASK, "tools": TOOLS}
    found = {}
    for result, block in (
        ("ok", ODD),
        ("repaired", ODD.replace("</｜DSML｜invoke", "</invoke")),
        ("failed", ODD[:30]),
    ):
        with live_server(Script(f"</think>{block}")) as live:
            post(live, CHAT, body)
            lines = get(live, "/metrics").text.splitlines()
        found[result] = [
            line for line in lines if line.startswith("ds4_tool_parse_total") and line.endswith(" 1")
        ]

    assert {name: [f'ds4_tool_parse_total{{result="{name}"}} 1'] for name in found} == found


@pytest.mark.parametrize(
    ("written", "given"),
    [
        pytest.param("1" + "0" * 30, 10**30, id="beyond_64_bits"),
        pytest.param("1e999", "1e999", id="beyond_all_floats"),
        pytest.param('{"\\ud800": ["x\\udfff"]}', {"\ufffd": ["x\ufffd"]}, id="half_characters"),
        pytest.param('"\\ud83c\\udf89"', "🎉", id="two_halves"),
        pytest.param("NaN", "NaN", id="no_number"),
    ],
)
def test_arguments_are_json_that_everybody_reads(written: str, given: object) -> None:
    block = ODD.replace("[1,2]", written)
    tool = {"name": "bash", "input_schema": SCHEMA}
    responses = {"input": "Hi", "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]}
    with live_server(Script(f"r</think>{block}")) as live:
        chat = post(live, CHAT, {"messages": ASK, "tools": TOOLS})
        chunks = stream(live, CHAT, {"messages": ASK, "tools": TOOLS})
        message = post(live, MESSAGES, {"messages": ASK, "tools": [tool]})
        events = stream(live, MESSAGES, {"messages": ASK, "tools": [tool]})
        response = post(live, "/v1/responses", responses)
    calls = [
        call for event in chunks[:-1] for call in event.data["choices"][0]["delta"].get("tool_calls", [])
    ]
    told = [
        chat.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
        "".join(call["function"]["arguments"] for call in calls),
        json.dumps(message.json()["content"][-1]["input"]),
        "".join(event.data.get("delta", {}).get("partial_json", "") for event in events),
        response.json()["output"][-1]["arguments"],
    ]

    assert [{"command": "ls", "n": given}] * 5 == [json.loads(text) for text in told]
    assert not any("Infinity" in text or "NaN," in text for text in told)
