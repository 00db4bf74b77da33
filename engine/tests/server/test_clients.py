"""Both official Python clients, asynchronous and at their limits: retries, errors, tool loops."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from engine.chat.markers import USER
from engine.config import EngineSettings
from engine.tests.server.live import Live, Script, live_server, until
from engine.tests.server.test_openai import BLOCK

ASK: list[Any] = [{"role": "user", "content": "Where am I?"}]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
MESSAGE_TOOLS: list[Any] = [{"name": "bash", "input_schema": SCHEMA}]
RESPONSE_TOOLS: list[Any] = [{"type": "function", "name": "bash", "parameters": SCHEMA}]


def behave(prompt: str) -> str:
    """Call a tool, and tell its result once there is one."""
    last = prompt.rsplit(USER, 1)[1]
    if "<tool_result>" in last:
        return "I have it.</think>You are in " + last.split("<tool_result>")[1].split("<")[0]
    return f"I look.</think>One moment.{BLOCK}"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script(behave)) as running:
        yield running


def chat_client(live: Live, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{live.base_url}/v1", api_key="x", **options)


def message_client(live: Live, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=live.base_url, api_key="x", **options)


def test_a_tool_loop_runs_over_chat(live: Live) -> None:
    async def run() -> tuple[Any, str]:
        async with chat_client(live) as client:
            ask: Any = {"model": "m", "tools": CHAT_TOOLS}
            async with client.chat.completions.stream(messages=ASK, **ask) as events:
                first = (await events.get_final_completion()).choices[0].message
            assert first.tool_calls is not None
            result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "/srv"}
            history = [*ASK, first.model_dump(exclude_none=True, exclude={"parsed"}), result]
            second = await client.chat.completions.create(messages=history, **ask)
            return first, second.choices[0].message.content or ""

    first, second = asyncio.run(run())

    assert {"command": "ls && pwd"} == json.loads(first.tool_calls[0].function.arguments)
    assert "You are in /srv" == second


def test_a_tool_loop_runs_over_messages(live: Live) -> None:
    async def run() -> tuple[Any, Any]:
        async with message_client(live) as client:
            ask: Any = {"model": "m", "tools": MESSAGE_TOOLS, "max_tokens": 400}
            async with client.messages.stream(messages=ASK, **ask) as events:
                first = await events.get_final_message()
            result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "/srv"}  # type: ignore[union-attr]
            history = [
                *ASK,
                {"role": "assistant", "content": [block.model_dump() for block in first.content]},
                {"role": "user", "content": [result]},
            ]
            counted = await client.messages.count_tokens(model="m", messages=history, tools=MESSAGE_TOOLS)
            second = await client.messages.create(messages=history, **ask)
            assert counted.input_tokens == second.usage.input_tokens + (
                second.usage.cache_read_input_tokens or 0
            )
            return first, second

    first, second = asyncio.run(run())

    assert ["thinking", "text", "tool_use"] == [block.type for block in first.content]
    assert ("tool_use", "end_turn") == (first.stop_reason, second.stop_reason)
    assert "You are in /srv" == second.content[-1].text
    assert second.usage.cache_read_input_tokens > first.usage.input_tokens


def test_a_tool_loop_runs_over_responses(live: Live) -> None:
    async def run() -> Any:
        async with chat_client(live) as client:
            ask: Any = {"model": "m", "tools": RESPONSE_TOOLS, "store": False}
            async with client.responses.stream(input=ASK, **ask) as events:
                first = await events.get_final_response()
            call: Any = first.output[-1]
            items = [item.model_dump(exclude_none=True) for item in first.output]
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "/srv"}
            history: list[Any] = [*ASK, *items, result]
            return await client.responses.create(input=history, **ask)

    assert "You are in /srv" == asyncio.run(run()).output_text


def test_sixteen_asynchronous_streams_do_not_mix(live: Live) -> None:
    async def one(client: Any, number: int) -> str:
        history = [*ASK, {"role": "tool", "tool_call_id": "c", "content": f"place {number}"}]
        stream = await client.chat.completions.create(model="m", messages=history, stream=True, max_tokens=60)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    async def run() -> list[str]:
        async with chat_client(live) as client:
            return await asyncio.gather(*(one(client, number) for number in range(16)))

    assert [f"You are in place {number}" for number in range(16)] == asyncio.run(run())


def refusals(live: Live) -> int:
    return live.service.engine.stats().counters["requests_rejected"]


def test_a_full_server_is_tried_again_and_says_so_where_it_is_not() -> None:
    gate = threading.Event()
    script = Script("</think>ok", before_step=lambda _: gate.wait(60))
    settings = EngineSettings(max_sequences=1, queue_depth=0)
    with live_server(script, engine=settings) as live:

        def open_after_three() -> None:
            until(lambda: refusals(live) >= 3)
            gate.set()

        one = openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="x", max_retries=0)
        held = threading.Thread(target=lambda: one.chat.completions.create(model="m", messages=ASK))
        held.start()
        until(lambda: live.service.engine.stats().running == 1)
        with pytest.raises(openai.InternalServerError) as refused:
            one.chat.completions.create(model="m", messages=ASK)
        with (
            anthropic.Anthropic(base_url=live.base_url, api_key="x", max_retries=0) as other,
            pytest.raises(anthropic.APIStatusError) as overloaded,
        ):
            other.messages.create(model="m", max_tokens=9, messages=ASK)
        opener = threading.Thread(target=open_after_three)
        opener.start()
        with openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="x", max_retries=20) as patient:
            answer = patient.chat.completions.create(model="m", messages=ASK)
        opener.join(20)
        held.join(20)
        one.close()

    assert (503, "1") == (refused.value.status_code, refused.value.response.headers["retry-after"])
    assert "overloaded_error" in str(overloaded.value.body)
    assert "ok" == answer.choices[0].message.content


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param({"temperature": 9}, openai.BadRequestError, id="range"),
        pytest.param(
            {"messages": [{"role": "user", "content": "x" * 9000}]}, openai.BadRequestError, id="long"
        ),
    ],
)
def test_errors_are_the_exceptions_of_the_client(
    live: Live, body: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="x") as client:  # 400 is never tried again
        before = refusals(live)
        with pytest.raises(error) as caught:
            client.chat.completions.create(**{"model": "m", "messages": ASK, **body})

    assert 1 == refusals(live) - before
    assert caught.value.request_id is not None


def test_raw_responses_show_the_request_id(live: Live) -> None:
    history: list[Any] = [*ASK, {"role": "tool", "tool_call_id": "c", "content": "x"}]
    with openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="x") as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=history)
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-5")

    assert raw.headers["x-request-id"].startswith("req_")
    assert "You are in x" == raw.parse().choices[0].message.content
