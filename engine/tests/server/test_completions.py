"""POST /v1/completions: raw continuations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.wire import post, stream

PATH = "/v1/completions"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("Hello <think>x</think> there.")) as running:
        yield running


def test_the_prompt_is_continued_without_any_chat_format(live: Live) -> None:
    answer = post(live, PATH, {"prompt": "Once", "max_tokens": 3}).json()

    assert "text_completion" == answer["object"]
    assert answer["id"].startswith("cmpl-")
    assert "length" == answer["choices"][0]["finish_reason"]
    assert 1 + len("Once") == answer["usage"]["prompt_tokens"]
    assert answer["timings"]["prefill_tokens"] == answer["usage"]["prompt_tokens"]


def test_a_list_of_one_text_and_its_ids_mean_the_same(live: Live) -> None:
    ids = post(live, "/tokenize", {"prompt": "Once"}).json()["tokens"]
    bodies: list[Any] = ["Once", ["Once"], ids]
    answers = [
        post(live, PATH, {"prompt": prompt, "max_tokens": 4, "return_token_ids": True}).json()
        for prompt in bodies
    ]

    assert 1 == len({str(answer["choices"]) for answer in answers})
    assert 4 == len(answers[0]["choices"][0]["token_ids"])


def test_a_wrapped_prompt_is_a_user_message(live: Live) -> None:
    answer = post(live, PATH, {"prompt": "Hi", "chat_wrap": True}).json()

    assert "Hello <think>x</think> there." == answer["choices"][0]["text"]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("prompt", None),
        ("prompt", []),
        ("prompt", ["a", "b"]),
        ("prompt", [1, "b"]),
        ("prompt", [10**9]),
        ("prompt", [-1]),
        ("prompt", [True]),
        ("prompt", 3),
        ("best_of", 2),
        ("n", 0),
        ("n", 9),
        ("echo", True),
        ("suffix", "x"),
        ("logprobs", 6),
        ("logprobs", -1),
        ("logprobs", True),
        ("max_tokens", -1),
    ],
)
def test_what_it_cannot_do_is_refused_by_its_name(live: Live, member: str, value: object) -> None:
    answer = post(live, PATH, {"prompt": "Hi", member: value})

    assert 400 == answer.status_code
    assert member == answer.json()["error"]["param"].split(".")[0]


def test_a_prompt_that_does_not_fit_names_the_prompt(live: Live) -> None:
    error = post(live, PATH, {"prompt": "x" * 5000}).json()["error"]

    assert ("context_length_exceeded", "prompt") == (error["code"], error["param"])


def test_a_stream_is_the_whole_answer_in_pieces(live: Live) -> None:
    body = {"prompt": "Hi", "chat_wrap": True, "stop": ["there"], "return_token_ids": True}
    whole = post(live, PATH, body).json()
    events = [event.data for event in stream(live, PATH, {**body, "stream_options": {"include_usage": True}})]
    choices = [choice for data in events[:-1] for choice in data["choices"]]

    assert "[DONE]" == events[-1]
    assert [] == events[-2]["choices"]
    assert whole["usage"]["completion_tokens"] == events[-2]["usage"]["completion_tokens"]
    assert whole["choices"][0]["text"] == "".join(choice["text"] for choice in choices)
    assert whole["choices"][0]["token_ids"] == [token for choice in choices for token in choice["token_ids"]]
    assert ["stop"] == [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def test_the_openai_client_reads_both_forms(live: Live) -> None:
    with openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="x", max_retries=0) as client:
        whole = client.completions.create(model="m", prompt="Once", max_tokens=5, seed=1)
        chunks = list(client.completions.create(model="m", prompt="Once", max_tokens=5, seed=1, stream=True))

    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)


def test_probabilities_come_in_four_lists_whole_and_streamed() -> None:
    body = {"prompt": "Hi", "chat_wrap": True, "logprobs": 2, "return_token_ids": True}
    with live_server(Script("caf\u00e9 \u20ac!")) as live:
        whole = post(live, PATH, body).json()["choices"][0]
        events = [event.data for event in stream(live, PATH, body)]
    parts = [choice["logprobs"] for data in events[:-1] for choice in data["choices"] if choice["logprobs"]]
    lists = whole["logprobs"]

    assert {name: [entry for part in parts for entry in part[name]] for name in lists} == lists
    assert {len(whole["token_ids"])} == {len(entries) for entries in lists.values()}
    assert ["c", "a", "f", "bytes:\\xc3", "bytes:\\xa9", " "] == lists["tokens"][:6]
    assert [0, 1, 2, 3, 3, 4, 5, 5, 5, 6] == lists["text_offset"]
    assert all(2 == len(likely) for likely in lists["top_logprobs"])
    for token, value, likely in zip(
        lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True
    ):
        assert max(likely.values()) == likely[token] == value


def test_the_chosen_token_is_listed_though_it_is_not_among_the_likeliest() -> None:
    body = {"prompt": "Once", "max_tokens": 8, "logprobs": 0, "temperature": 2}
    with live_server(Script(certain=False)) as live:
        lists = post(live, PATH, body).json()["choices"][0]["logprobs"]

    assert [[token] for token in lists["tokens"]] == [list(likely) for likely in lists["top_logprobs"]]


def test_as_many_of_the_best_as_are_made_can_be_asked_for(live: Live) -> None:
    answer = post(live, PATH, {"prompt": "Once", "max_tokens": 2, "n": 2, "best_of": 2}).json()

    assert [0, 1] == [choice["index"] for choice in answer["choices"]]
