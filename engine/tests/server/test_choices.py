"""Several answers to one prompt (`n`): each is what it would be alone, and the prompt is computed once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.config import EngineSettings
from engine.server.ids import nth_seed
from engine.tests.fake_pages import ledger
from engine.tests.server.live import Live, Script, live_server, until
from engine.tests.server.wire import post, stream

CHAT = "/v1/chat/completions"
ASK: list[Any] = [{"role": "user", "content": "Tell me something, and take your time."}]
DRAWN = {"temperature": 2.0, "seed": 5, "max_tokens": 40, "think": False, "return_token_ids": True}
TOOL = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("word " * 30)) as running:
        yield running


@pytest.fixture(scope="module")
def free() -> Iterator[Live]:
    """A model that prefers nothing, so that seeds matter."""
    with live_server(Script(certain=False)) as running:
        yield running


def computed(live: Live) -> int:
    return live.service.engine.stats().counters["tokens_prefilled_computed"]


def test_every_choice_is_the_answer_to_its_own_seed(free: Live) -> None:
    body = {"messages": ASK, "model": "m", **DRAWN}
    several = post(free, CHAT, {**body, "n": 4}).json()
    alone = [
        post(free, CHAT, {**body, "seed": nth_seed(5, index)}).json()["choices"][0] for index in range(4)
    ]

    assert [0, 1, 2, 3] == [choice["index"] for choice in several["choices"]]
    for choice, single in zip(several["choices"], alone, strict=True):
        assert single["token_ids"] == choice["token_ids"]
        assert (single["message"], single["finish_reason"]) == (choice["message"], choice["finish_reason"])
    assert 4 == len({str(choice["token_ids"]) for choice in several["choices"]})


def test_the_prompt_is_computed_and_counted_once(live: Live) -> None:
    body = {"messages": [{"role": "user", "content": "A prompt of its own. " * 20}], "n": 5, "max_tokens": 4}
    before = computed(live)
    answer = post(live, CHAT, body).json()
    usage, prompt = answer["usage"], answer["usage"]["prompt_tokens"]

    assert prompt - usage["prompt_tokens_details"]["cached_tokens"] + 4 == computed(live) - before
    assert 5 * 4 == usage["completion_tokens"]
    assert prompt + 20 == usage["total_tokens"]
    assert (prompt, 20) == (answer["timings"]["prefill_tokens"], answer["timings"]["predicted_n"])


def test_without_the_cache_every_choice_computes_the_prompt(live: Live) -> None:
    body = {"messages": ASK, "n": 3, "max_tokens": 2, "cache_prompt": False}
    before = computed(live)
    answer = post(live, CHAT, body).json()

    assert 3 * answer["usage"]["prompt_tokens"] == computed(live) - before
    assert 1 == len({choice["message"]["content"] for choice in answer["choices"]})


def test_a_stream_has_every_choice_under_its_index(free: Live) -> None:
    body = {"messages": ASK, "n": 3, **DRAWN}
    whole = post(free, CHAT, body).json()
    events = [event.data for event in stream(free, CHAT, {**body, "stream_options": {"include_usage": True}})]
    chunks = [choice for data in events[:-1] for choice in data["choices"]]

    assert "[DONE]" == events[-1]
    assert whole["usage"]["completion_tokens"] == events[-2]["usage"]["completion_tokens"]
    assert 1 == sum("usage" in data for data in events[:-1])
    for choice in whole["choices"]:
        own = [chunk for chunk in chunks if chunk["index"] == choice["index"]]
        assert {"role": "assistant", "content": ""} == own[0]["delta"]
        assert choice["message"]["content"] == "".join(chunk["delta"].get("content", "") for chunk in own)
        assert choice["token_ids"] == [token for chunk in own for token in chunk.get("token_ids", [])]
        assert [choice["finish_reason"]] == [
            chunk["finish_reason"] for chunk in own if chunk["finish_reason"]
        ]
        assert choice["finish_reason"] == own[-1]["finish_reason"]


def test_choices_of_a_continuation_have_lists_of_their_own(free: Live) -> None:
    body = {"prompt": "Once", "n": 3, "temperature": 2.0, "seed": 1, "max_tokens": 6, "logprobs": 1}
    whole = post(free, "/v1/completions", body).json()["choices"]
    chunks = [
        choice for event in stream(free, "/v1/completions", body)[:-1] for choice in event.data["choices"]
    ]
    offsets = [
        [at for chunk in chunks if chunk["index"] == index and chunk["logprobs"]
         for at in chunk["logprobs"]["text_offset"]]
        for index in range(3)
    ]  # fmt: skip

    assert [0, 1, 2] == [choice["index"] for choice in whole]
    assert [choice["logprobs"]["text_offset"] for choice in whole] == offsets
    assert 3 == len({choice["text"] for choice in whole})


def test_choices_make_calls_with_ids_of_their_own() -> None:
    block = (
        '</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n'
        '<｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )
    body = {"messages": ASK, "tools": [TOOL], "tool_choice": "required", "n": 3}
    with live_server(Script(block)) as running:
        choices = post(running, CHAT, body).json()["choices"]
    calls = [choice["message"]["tool_calls"][0] for choice in choices]

    assert ["tool_calls"] * 3 == [choice["finish_reason"] for choice in choices]
    assert 3 == len({call["id"] for call in calls})
    assert [{"command": "ls"}] * 3 == [json.loads(call["function"]["arguments"]) for call in calls]


def test_the_openai_client_reads_several_choices() -> None:
    with (
        live_server(Script("</think>Hello.")) as live,
        openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="x", max_retries=0) as client,
    ):
        whole = client.chat.completions.create(model="m", messages=ASK, n=2)
        with client.chat.completions.stream(model="m", messages=ASK, n=2) as events:
            final = events.get_final_completion()

    assert [0, 1] == [choice.index for choice in whole.choices]
    assert [c.message.content for c in whole.choices] == [c.message.content for c in final.choices]


def test_choices_that_do_not_fit_together_are_refused_together() -> None:
    settings = EngineSettings(max_sequences=4, queue_depth=0)
    tight = Script("</think>ok", ledger=ledger(pages=60))
    with live_server(tight, engine=settings) as running:
        one = post(running, CHAT, {"messages": ASK, "max_tokens": 100})
        four = post(running, CHAT, {"messages": ASK, "max_tokens": 100, "n": 4})
        until(lambda: running.service.engine.stats().running + running.service.engine.stats().queued == 0)
        counters = running.service.engine.stats().counters

    assert (200, 503) == (one.status_code, four.status_code)
    assert "memory" in four.json()["error"]["message"]
    assert counters["requests_started"] == sum(
        counters[f"requests_{name}"] for name in ("completed", "failed", "canceled", "rejected")
    )


def test_a_client_that_leaves_ends_all_choices(live: Live) -> None:
    import httpx2

    body = {"messages": ASK, "n": 8, "stream": True, "min_p": 0}
    with httpx2.stream("POST", live.base_url + CHAT, json=body, timeout=30, verify=False) as answer:
        next(answer.iter_lines())
    until(lambda: live.service.engine.stats().running + live.service.engine.stats().queued == 0, 5)
