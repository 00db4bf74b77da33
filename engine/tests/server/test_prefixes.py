"""Kept prefixes as clients see them: what a next turn costs, and what must not cost it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.core import EventSink, Request
from engine.loop import Engine
from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.wire import post

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("Let me see.</think>It is 4.")) as running:
        yield running


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_the_second_turn_of_a_thinking_conversation_costs_only_what_is_new(live: Live) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Rules. " * 400},
        {"role": "user", "content": "First."},
    ]
    first = post(live, CHAT, {"messages": messages}).json()
    messages += [first["choices"][0]["message"], {"role": "user", "content": "Next."}]
    second = post(live, CHAT, {"messages": messages}).json()

    assert cached(second) >= 0.99 * first["usage"]["prompt_tokens"]


@pytest.mark.parametrize("padding", [" ", "\n", "", None])
def test_padded_empty_reasoning_is_no_reasoning(live: Live, padding: str | None) -> None:
    said: dict[str, Any] = {"role": "assistant", "content": "It is 4."}
    turn = {"role": "user", "content": "q"}
    padded = {**said, "reasoning_content": padding}
    bodies = [{"messages": [turn, middle, turn]} for middle in (said, padded)]
    counts = [post(live, "/tokenize", body).json()["tokens"] for body in bodies]

    assert counts[0] == counts[1]


def test_a_changing_billing_line_does_not_cost_the_prefix(live: Live) -> None:
    def body(value: int) -> dict[str, Any]:
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cch={value};"},
            {"type": "text", "text": "You are a tool. " * 20, "cache_control": {"type": "ephemeral"}},
        ]
        return {"system": system, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}

    usages = [post(live, MESSAGES, body(value)).json()["usage"] for value in (1, 2)]

    assert 1 == usages[1]["input_tokens"]
    assert (
        usages[0]["input_tokens"] + usages[0]["cache_read_input_tokens"]
        == 1 + usages[1]["cache_read_input_tokens"]
    )


@pytest.mark.parametrize(("effort", "grows"), [("max", True), ("high", False), ("xhigh", False)])
def test_the_highest_effort_is_honoured_at_any_context_size(live: Live, effort: str, grows: bool) -> None:
    messages = [{"role": "user", "content": "q"}]
    plain = post(live, "/tokenize", {"messages": messages}).json()["count"]
    asked = post(live, "/tokenize", {"messages": messages, "reasoning_effort": effort}).json()["count"]

    assert (476 if grows else 0) == asked - plain


def test_serving_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with live_server(Script("</think>ok")) as running:
        for text in ("a" * 3000, "a" * 3000, "b"):
            assert 200 == post(running, CHAT, {"messages": [{"role": "user", "content": text}]}).status_code

    assert [] == list(tmp_path.iterdir())


def test_an_unset_temperature_is_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    submit = Engine.submit

    def watch(engine: Engine, request: Request, sink: EventSink) -> None:
        seen.append(request.sampling.temperature)
        submit(engine, request, sink)

    monkeypatch.setattr(Engine, "submit", watch)
    members: tuple[dict[str, float], ...] = ({}, {"temperature": 1.5})
    with live_server(Script("</think>ok")) as running:
        for said in members:
            post(running, CHAT, {"messages": [{"role": "user", "content": "q"}], **said})

    assert [0.0, 1.5] == seen
