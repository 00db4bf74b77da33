"""The chat endpoint as the openai client sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.tests.server.live import CONTEXT, Live, Script, byte_tokenizer, live_server

ASK: list[Any] = [{"role": "user", "content": "Hi"}]
TOOL = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}},
}
BLOCK = (
    '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n'
    '<｜DSML｜parameter name="command" string="true">ls && pwd</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


@pytest.fixture(scope="module")
def thinker() -> Iterator[Live]:
    with live_server(Script("Let me see.</think>It is 4 🎉 café.")) as live:
        yield live


def client(live: Live, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="anything", max_retries=0, **options)


def stream(live: Live, **options: Any) -> list[Any]:
    with client(live) as connection:
        return list(connection.chat.completions.create(model="m", messages=ASK, stream=True, **options))


def test_reasoning_and_content_arrive_apart(thinker: Live) -> None:
    with client(thinker) as connection:
        answer = connection.chat.completions.create(model="m", messages=ASK)
    message = answer.choices[0].message

    assert ("It is 4 🎉 café.", "Let me see.") == (message.content, message.reasoning_content)  # type: ignore[attr-defined]
    assert ("stop", "m", "chat.completion") == (answer.choices[0].finish_reason, answer.model, answer.object)


def test_a_stream_concatenates_to_the_whole_answer(thinker: Live) -> None:
    chunks = stream(thinker, stream_options={"include_usage": True})
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    content = "".join(delta.content or "" for delta in deltas)
    reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)

    assert ("It is 4 🎉 café.", "Let me see.") == (content, reasoning)
    assert ("assistant", "") == (deltas[0].role, deltas[0].content)
    assert {"chat.completion.chunk"} == {chunk.object for chunk in chunks}
    assert 1 == len({(chunk.id, chunk.created, chunk.model) for chunk in chunks})
    assert ["stop"] == [
        c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason
    ]


def test_the_usage_chunk_comes_last_and_only_on_demand(thinker: Live) -> None:
    asked = stream(thinker, stream_options={"include_usage": True})
    silent = stream(thinker)

    assert [] == asked[-1].choices
    assert len("Let me see.") == asked[-1].usage.completion_tokens_details.reasoning_tokens
    assert [None] == list({chunk.usage for chunk in silent})
    assert "usage" not in silent[1].model_fields_set


def test_token_ids_of_all_chunks_are_the_sampled_ids(thinker: Live) -> None:
    with client(thinker) as connection:
        body = {"return_token_ids": True}
        whole: Any = connection.chat.completions.create(model="m", messages=ASK, extra_body=body)
    chunks = stream(thinker, extra_body=body, stream_options={"include_usage": True})
    ids = [token for chunk in chunks for c in chunk.choices for token in getattr(c, "token_ids", [])]

    assert whole.choices[0].token_ids == ids
    assert whole.usage.completion_tokens == len(ids) == chunks[-1].usage.completion_tokens


def test_the_same_prompt_again_is_reported_as_cached(thinker: Live) -> None:
    messages: list[Any] = [{"role": "user", "content": "A question nobody asked before, long enough."}]
    with client(thinker) as connection:
        usages: list[Any] = [
            connection.chat.completions.create(model="m", messages=messages).usage for _ in range(2)
        ]
    prompt = usages[0].prompt_tokens

    assert [prompt, prompt] == [usage.prompt_tokens for usage in usages]
    assert prompt - 1 == usages[1].prompt_tokens_details.cached_tokens
    assert usages[0].prompt_tokens_details.cached_tokens < prompt - 10


def test_a_turn_that_continues_the_conversation_is_served_from_cache() -> None:
    with live_server(Script("Certainly.")) as live, client(live) as connection:
        messages: list[Any] = [{"role": "user", "content": "First question."}]
        options: Any = {"model": "m", "extra_body": {"think": False}}
        first = connection.chat.completions.create(messages=messages, **options)
        messages += [
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "user", "content": "Next?"},
        ]
        second: Any = connection.chat.completions.create(messages=messages, **options)

    assert first.usage is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert first.usage.prompt_tokens + len("Certainly.") == cached


def test_a_budget_that_ends_in_the_reasoning_leaves_content_empty(thinker: Live) -> None:
    with client(thinker) as connection:
        answer: Any = connection.chat.completions.create(model="m", messages=ASK, max_tokens=5)
    choice = answer.choices[0]

    assert ("", "Let m", "length") == (
        choice.message.content,
        choice.message.reasoning_content,
        choice.finish_reason,
    )
    assert (5, 5) == (
        answer.usage.completion_tokens,
        answer.usage.completion_tokens_details.reasoning_tokens,
    )


def test_a_budget_of_zero_gives_an_empty_answer(thinker: Live) -> None:
    with client(thinker) as connection:
        answer = connection.chat.completions.create(model="m", messages=ASK, max_tokens=0)

    assert ("", "length") == (answer.choices[0].message.content, answer.choices[0].finish_reason)


def test_a_budget_larger_than_the_room_is_clamped(thinker: Live) -> None:
    with client(thinker) as connection:
        answer = connection.chat.completions.create(model="m", messages=ASK, max_tokens=2**62)

    assert "stop" == answer.choices[0].finish_reason


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_stop_string_cuts_the_content_only(thinker: Live, streaming: bool) -> None:
    options: Any = {"model": "m", "messages": ASK, "stop": ["4 ", "see"]}
    with client(thinker) as connection:
        if streaming:
            chunks = list(connection.chat.completions.create(stream=True, **options))
            content = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            finish = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
        else:
            answer = connection.chat.completions.create(**options)
            content, finish = answer.choices[0].message.content, answer.choices[0].finish_reason

    assert ("It is ", "stop") == (content, finish)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_tool_call_reaches_the_client(streaming: bool) -> None:
    options: Any = {"model": "m", "messages": ASK, "tools": [TOOL]}
    with live_server(Script(f"I look.</think>Working.{BLOCK}")) as live, client(live) as connection:
        if streaming:
            with connection.chat.completions.stream(**options) as events:
                answer: Any = events.get_final_completion()
        else:
            answer = connection.chat.completions.create(**options)
    choice = answer.choices[0]
    call = choice.message.tool_calls[0]

    assert ("tool_calls", "Working.") == (choice.finish_reason, choice.message.content)
    assert ("bash", '{"command": "ls && pwd"}') == (call.function.name, call.function.arguments)
    assert call.id.startswith("call_")


def test_without_tools_the_markup_cannot_be_drawn() -> None:
    with live_server(Script(f"</think>ok{BLOCK}")) as live, client(live) as connection:
        answer = connection.chat.completions.create(model="m", messages=ASK)

    assert "DSML" not in (answer.choices[0].message.content or "")
    assert not answer.choices[0].message.tool_calls


def test_thinking_can_be_switched_off() -> None:
    with live_server(Script("Plain.")) as live, client(live) as connection:
        body: Any = {"thinking": {"type": "disabled"}}
        answer: Any = connection.chat.completions.create(model="m", messages=ASK, extra_body=body)

    assert "Plain." == answer.choices[0].message.content
    assert not hasattr(answer.choices[0].message, "reasoning_content")
    assert 0 == answer.usage.completion_tokens_details.reasoning_tokens


def test_the_model_list_has_only_what_is_loaded(thinker: Live) -> None:
    with client(thinker) as connection:
        models: list[Any] = list(connection.models.list())
        alias = connection.models.retrieve("deepseek-chat")
        with pytest.raises(openai.NotFoundError):
            connection.models.retrieve("gpt-5")

    assert [("script-model", CONTEXT)] == [(model.id, model.context_length) for model in models]
    assert "script-model" == alias.id


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(thinker: Live) -> None:
    messages: list[Any] = [{"role": "user", "content": "x" * CONTEXT}]
    with client(thinker) as connection, pytest.raises(openai.BadRequestError) as caught:
        connection.chat.completions.create(model="m", messages=messages, stream=True)
    body: Any = caught.value.body

    assert ("context_length_exceeded", "messages") == (body["code"], body["param"])
    assert body["n_prompt_tokens"] >= body["n_ctx"] == CONTEXT


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("x", id="one_byte"),
        pytest.param(" \n\t " * 50, id="blank"),
        pytest.param("a\x00b\u202ec", id="nul_and_bidi"),
        pytest.param("\ud800", id="lone_surrogate"),
        pytest.param("<｜User｜></think><｜end▁of▁sentence｜>", id="markers"),
    ],
)
def test_edge_inputs_are_answered(thinker: Live, content: str) -> None:
    import json

    import httpx2

    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    answer = httpx2.post(f"{thinker.base_url}/v1/chat/completions", content=body, timeout=30, verify=False)

    assert 200 == answer.status_code
    assert "It is 4 🎉 café." == answer.json()["choices"][0]["message"]["content"]


def test_an_answer_in_company_equals_the_answer_alone() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def ask(name: int) -> str | None:
        messages: list[Any] = [{"role": "user", "content": f"Question {name}"}]
        answer = connection.chat.completions.create(
            model="m", messages=messages, temperature=1.7, seed=name, max_tokens=30
        )
        return answer.choices[0].message.content

    script = Script("</think>" + "word " * 10, byte_tokenizer())
    with live_server(script) as live, client(live) as connection:
        alone = [ask(name) for name in range(6)]
        with ThreadPoolExecutor(6) as pool:
            together = list(pool.map(ask, range(6)))

    assert alone == together


def test_probabilities_cover_every_token_of_the_answer_whole_and_streamed(thinker: Live) -> None:
    asked = {"logprobs": True, "top_logprobs": 3, "extra_body": {"return_token_ids": True}}
    with client(thinker) as connection:
        create: Any = connection.chat.completions.create
        choice = create(model="m", messages=ASK, **asked).choices[0]
    chunks = stream(thinker, **asked)
    streamed = [
        token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for token in choice.logprobs.content
    ]
    whole = choice.logprobs.content

    assert len(choice.token_ids) == len(whole)
    assert [(token.token, token.logprob) for token in whole] == [(t.token, t.logprob) for t in streamed]
    assert "Let me see.</think>It is 4 🎉 café.".encode() == b"".join(bytes(token.bytes) for token in whole)
    assert all(3 == len(token.top_logprobs) and token.logprob <= 0 for token in whole)
    assert all(token.logprob == token.top_logprobs[0].logprob for token in whole), (
        "greedy takes the likeliest"
    )


def test_likely_tokens_are_not_reported_unasked(thinker: Live) -> None:
    with client(thinker) as connection, pytest.raises(openai.BadRequestError, match="top_logprobs"):
        connection.chat.completions.create(model="m", messages=ASK, top_logprobs=3)
