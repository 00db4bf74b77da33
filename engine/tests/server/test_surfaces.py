"""What holds on every API surface alike: streams, counts, tolerance, and neighbours that never mix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.chat.markers import DSML, USER
from engine.tests.server.live import Live, Script, live_server, until
from engine.tests.server.wire import Event, post, stream

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
SURFACES = (CHAT, RESPONSES, MESSAGES)
REASONING = "Let me see."


@pytest.fixture(scope="module")
def thinker() -> Iterator[Live]:
    with live_server(Script(f"{REASONING}</think>It is 4.")) as live:
        yield live


def ask(path: str, content: object = "Hi", **members: object) -> dict[str, Any]:
    """A body that asks the same on any surface."""
    if path == RESPONSES:
        return {"input": [{"role": "user", "content": content}], **members}
    return {"messages": [{"role": "user", "content": content}], **members}


def text_of(path: str, answer: dict[str, Any]) -> str:
    """The visible text of a whole answer."""
    if path == CHAT:
        return answer["choices"][0]["message"]["content"] or ""
    if path == MESSAGES:
        return "".join(block.get("text", "") for block in answer["content"])
    return "".join(part["text"] for item in answer["output"] for part in item.get("content", []))


def streamed_text(path: str, events: list[Event]) -> str:
    """The visible text of a stream."""
    if path == CHAT:
        deltas = [e.data["choices"][0]["delta"] for e in events if e.data != "[DONE]" and e.data["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)
    if path == MESSAGES:
        return "".join(e.data["delta"].get("text", "") for e in events if e.name == "content_block_delta")
    return "".join(e.data["delta"] for e in events if e.name == "response.output_text.delta")


def reasoning_tokens(path: str, answer: dict[str, Any]) -> int:
    """How the surface counts reasoning."""
    usage = answer["usage"]
    if path == CHAT:
        return int(usage["completion_tokens_details"]["reasoning_tokens"])
    details = usage["output_tokens_details"]
    return int(details["thinking_tokens" if path == MESSAGES else "reasoning_tokens"])


@pytest.mark.parametrize("path", SURFACES)
def test_reasoning_is_counted_and_never_in_the_text(thinker: Live, path: str) -> None:
    whole = post(thinker, path, ask(path)).json()
    streamed = stream(thinker, path, ask(path))

    assert "It is 4." == text_of(path, whole) == streamed_text(path, streamed)
    assert len(REASONING) == reasoning_tokens(path, whole)
    assert "think>" not in json.dumps([event.data for event in streamed])


@pytest.mark.parametrize("path", SURFACES)
@pytest.mark.parametrize("budget", range(len(REASONING) + len("It is 4.") + 3))
def test_every_budget_is_kept_and_told_alike(thinker: Live, path: str, budget: int) -> None:
    name = "max_output_tokens" if path == RESPONSES else "max_tokens"
    whole = post(thinker, path, ask(path, **{name: budget})).json()
    streamed = stream(thinker, path, ask(path, **{name: budget}))
    cut = budget <= len(REASONING) + len("It is 4.")  # the marker between them is a token, too
    ends = {
        CHAT: lambda: whole["choices"][0]["finish_reason"] == "length",
        MESSAGES: lambda: whole["stop_reason"] == "max_tokens",
        RESPONSES: lambda: whole["status"] == "incomplete",
    }
    written = whole["usage"]["completion_tokens" if path == CHAT else "output_tokens"]

    assert "It is 4."[: max(0, budget - len(REASONING) - 1)] == text_of(path, whole)
    assert text_of(path, whole) == streamed_text(path, streamed)
    assert min(budget, len(REASONING) + 1 + len("It is 4.")) == written
    assert cut or budget == written or budget > written
    assert (budget <= written) == ends[path]()


@pytest.mark.parametrize("path", SURFACES)
def test_unknown_members_nulls_and_lists_are_no_errors(thinker: Live, path: str) -> None:
    part = "input_text" if path == RESPONSES else "text"
    content = [
        {"type": part, "text": "a", "cache_control": {"type": "ephemeral"}, "zz": 1},
        {"type": part, "text": "b"},
    ]
    body = ask(path, content, context_management={"edits": []}, zz=[1], metadata={"user_id": "u"})
    nulls = dict.fromkeys(("tools", "tool_choice", "stop", "temperature", "seed", "stream", "model"))

    assert 200 == post(thinker, path, {**body, **nulls}).status_code
    assert 200 == post(thinker, path, {**body, "tools": []}).status_code


@pytest.mark.parametrize("path", SURFACES)
def test_two_hundred_kilobytes_of_system_text_and_sixty_tools_are_refused_by_length_only(
    thinker: Live, path: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "d" * 300}}}
    function = {"name": "f", "parameters": schema, "input_schema": schema}
    tools = [
        {"type": "function", "function": function} if path == CHAT else {"type": "function", **function}
        for _ in range(60)
    ]
    if path == MESSAGES:
        tools = [{"name": "f", "input_schema": schema} for _ in range(60)]
    body = ask(path, "x" * 200_000, tools=tools)
    answer = post(thinker, path, body)

    assert 400 == answer.status_code
    assert answer.json()["error"]["n_prompt_tokens"] > answer.json()["error"]["n_ctx"]


def test_many_clients_at_once_each_get_their_own_answer() -> None:
    def echo(prompt: str) -> str:
        return "</think>" + prompt.rsplit(USER, 1)[1]

    def one(number: int) -> bool:
        path, word = SURFACES[number % 3], f"canary {number} " * (1 + number % 5)
        body = ask(path, word, max_tokens=200)
        if number % 2:
            return word == text_of(path, post(live, path, body).json())
        return word == streamed_text(path, stream(live, path, body))

    with live_server(Script(echo)) as live, ThreadPoolExecutor(12) as pool:
        good = list(pool.map(one, range(48)))
        stats = live.service.engine.stats()

    assert [True] * 48 == good
    assert (0, 0) == (stats.running, stats.queued)


def test_a_second_user_does_not_wait_for_the_first_to_end() -> None:
    def lengths(prompt: str) -> str:
        return "</think>" + ("word " * 1000 if "long" in prompt else "ok")

    with live_server(Script(lengths)) as live, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(post, live, CHAT, ask(CHAT, "long"))
        until(lambda: live.service.engine.stats().counters["tokens_decoded"] > 5)
        quick = post(live, CHAT, ask(CHAT, "short")).json()["timings"]
        waiting = not slow.done()
        slow_times = slow.result().json()["timings"]

    assert waiting
    assert quick["total_ms"] < slow_times["total_ms"]


def test_no_markup_reaches_anybody_when_tools_may_not_be_called() -> None:
    block = f'\n\n<{DSML}tool_calls>\n<{DSML}invoke name="bash">\n\n</{DSML}invoke>\n</{DSML}tool_calls>'
    function = {"name": "bash", "parameters": {"type": "object"}}
    with live_server(Script(f"hm</think>ok{block}")) as live:
        answers = [
            post(live, CHAT, ask(CHAT, tools=[{"function": function}], tool_choice="none")),
            post(
                live,
                MESSAGES,
                ask(MESSAGES, tools=[{"name": "bash", "input_schema": {}}], tool_choice={"type": "none"}),
            ),
            post(
                live,
                RESPONSES,
                ask(RESPONSES, tools=[{"type": "function", **function}], tool_choice="none"),
            ),
        ]

    assert [] == [answer.text for answer in answers if re.search("DSML|tool_use|function_call", answer.text)]
