"""Counting and translating tokens without an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.tests.server.live import CONTEXT, Live, live_server
from engine.tests.server.wire import post


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server() as running:
        yield running


def test_a_bare_text_comes_back_from_its_ids(live: Live) -> None:
    text = "Grüße <think> 🎉\r\n\t123"
    found = post(live, "/tokenize", {"content": text}).json()
    back = post(live, "/detokenize", {"tokens": found["tokens"]}).json()

    assert (len(text.encode()), CONTEXT) == (found["count"], found["max_model_len"])
    assert (text, text) == (back["prompt"], back["content"])


def test_a_prompt_begins_with_the_opening_mark_unless_told_otherwise(live: Live) -> None:
    opened = post(live, "/tokenize", {"prompt": "ab"}).json()
    bare = post(live, "/tokenize", {"prompt": "ab", "add_special_tokens": False}).json()

    assert opened["tokens"][1:] == bare["tokens"]
    assert 2 == bare["count"]


@pytest.mark.parametrize("tokens", [None, "x", [1, "2"], [-1], [10**6], [True], [1.0]])
def test_ids_that_are_none_are_refused(live: Live, tokens: object) -> None:
    answer = post(live, "/detokenize", {"tokens": tokens})

    assert 400 == answer.status_code
    assert answer.json()["error"]["param"].startswith("tokens")


def test_counting_is_exact_and_leaves_no_trace(live: Live) -> None:
    body: dict[str, Any] = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    before = live.service.engine.stats()
    counted = post(live, "/v1/messages/count_tokens?beta=true", body).json()["input_tokens"]
    after = live.service.engine.stats()
    used = post(live, "/v1/messages", {**body, "max_tokens": 1}).json()["usage"]

    assert (before.records, before.counters) == (after.records, after.counters)
    assert counted == used["input_tokens"] + used["cache_read_input_tokens"]


def test_counting_refuses_what_the_message_would_refuse(live: Live) -> None:
    answer = post(live, "/v1/messages/count_tokens", {"messages": []})

    assert (400, "error") == (answer.status_code, answer.json()["type"])
