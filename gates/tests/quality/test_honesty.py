"""What probes prove: an honest server gives no doubt whatever it says, and each lie gives one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.harness.history import Event, Operation
from gates.quality import honesty, sets, variants
from gates.quality.mini import sets as mini
from gates.quality.traffic import reasoned
from gates.tests.quality.real import needs_sets, store

REPLY: Mapping[str, Any] = {
    "text": "It is 12.\n#### 12",
    "reasoning": "",
    "finish_reason": "stop",
    "prompt_tokens": 30,
    "completion_tokens": 9,
    "cached_tokens": 0,
    "total_tokens": 39,
    "first_token_s": 0.2,
    "seconds": 1.0,
    "fragments": 9,
}


def operation(
    what: str, *, item: str = "gsm8k/1", endpoint: str = "1/0", at_s: float = 0.0, **reply: Any
) -> Operation:
    """One answered probe that took a second."""
    asked = {"item": item, "arm": "fast", "endpoint": endpoint, "max_tokens": 64}
    answered = {**REPLY, **reply}
    return Operation(Event(0, at_s, "invoke", 0, what, asked), Event(0, at_s + 1.0, "ok", 0, what, answered))


def always(_: Operation) -> bool:
    return True


@given(said=st.integers(1, 2000), prompt=st.integers(1, 5000), mark=st.integers(0, 3))
def test_a_prompt_that_grows_by_the_reply_raises_no_doubt(said: int, prompt: int, mark: int) -> None:
    probes = honesty.probed(
        [
            operation("alone", completion_tokens=said),
            operation("once", prompt_tokens=prompt),
            operation("twice", prompt_tokens=prompt + said + mark),
        ]
    )

    assert () == honesty.counted([], probes).doubts


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.3, 2.0])
def test_a_reply_that_was_counted_otherwise_is_doubted(factor: float) -> None:
    probes = honesty.probed(
        [
            operation("alone", completion_tokens=round(50 * factor)),
            operation("once", prompt_tokens=90),
            operation("twice", prompt_tokens=140),
        ]
    )

    assert 1 == len(honesty.counted([operation("item")], probes).doubts)


def test_a_server_without_counts_is_not_measured_and_one_with_some_is_doubted() -> None:
    none: dict[str, Any] = {
        "prompt_tokens": None,
        "completion_tokens": None,
        "total_tokens": None,
        "cached_tokens": None,
    }

    assert (0, None) == (honesty.counted([operation("item", **none)], []).n, honesty.counted([], []).ratio)
    assert 0.5 == honesty.counted([operation("item", **none), operation("item")], []).ratio


@pytest.mark.parametrize(
    ("streamed", "whole", "doubts"),
    [
        pytest.param({"token_ids": [5, 6]}, {"token_ids": [5, 7]}, 0, id="the_same_token"),
        pytest.param({"token_ids": [5, 6]}, {"token_ids": [8, 6]}, 1, id="another_token_of_the_same_text"),
        pytest.param(
            {"token_ids": [5], "text": "1 2"}, {"token_ids": [5], "text": "1/2"}, 0, id="a_short_one"
        ),
        pytest.param(
            {"token_ids": [5]}, {"token_ids": [5], "text": "Well."}, 1, id="ids_beside_another_text"
        ),
        pytest.param({"token_ids": [5]}, {"text": "It was 12."}, 0, id="one_side_tells_no_ids"),
        pytest.param({}, {"text": "I am 12."}, 1, id="nobody_tells_ids"),
    ],
)
def test_a_first_token_is_known_by_its_id_where_both_replies_tell_it(
    streamed: dict[str, Any], whole: dict[str, Any], doubts: int
) -> None:
    probes = honesty.probed([operation("alone", **streamed), operation("whole", **whole)])

    assert doubts == len(honesty.first_tokens(probes).doubts)


def crossed(first: str, second: str, *, apart_s: float = 0.5, alone: str = "ab") -> honesty.Tried:
    """Two items that said so alone, and so in a burst in which the second was sent so much later."""
    said = [operation("alone", text=alone[0]), operation("alone", item="gsm8k/2", text=alone[1])]
    burst = [operation("burst", text=first), operation("burst", item="gsm8k/2", text=second, at_s=apart_s)]
    return honesty.exchanged(burst, honesty.probed(said))


def test_a_reply_of_another_client_is_seen_and_one_that_several_gave_is_not() -> None:
    assert [2, 0, 0, 1] == [len(crossed(*said).doubts) for said in ("ba", "ab", "xy", "aa")]
    assert () == crossed("C", "C", alone="CC").doubts


def test_requests_that_did_not_cross_prove_nothing() -> None:
    assert (2, 0) == (crossed("b", "a").n, crossed("b", "a", apart_s=1.0).n)


def test_requests_of_two_servers_do_not_cross() -> None:
    said = [operation("alone", text="a"), operation("alone", item="gsm8k/2", text="b", endpoint="1/1")]
    burst = [operation("burst", text="b"), operation("burst", item="gsm8k/2", text="a", endpoint="1/1")]

    assert 0 == honesty.exchanged(burst, honesty.probed(said)).n


def test_only_the_time_that_the_cache_does_not_explain_is_a_saving() -> None:
    def saving(**again: Any) -> float | None:
        pair = honesty.probed([operation("alone"), operation("again", **again)])
        return honesty.middle(honesty.repeat_savings(pair, quiet=always))

    assert 0.0 == saving(seconds=1.0)
    assert 0.0 == saving(seconds=0.81, cached_tokens=30)
    assert 0.9 == pytest.approx(saving(seconds=0.1))
    assert 0.7 == pytest.approx(saving(seconds=0.1, cached_tokens=30))
    assert None is saving(seconds=0.1, completion_tokens=5)


def test_times_of_a_busy_host_are_left_out() -> None:
    pair = honesty.probed([operation("alone"), operation("again"), operation("seeded")])

    assert [] == honesty.repeat_savings(pair, quiet=lambda _: False)
    assert [1.0] == honesty.seed_speeds(pair, quiet=always)


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ({}, False),
        ({"reasoning": "Hm."}, True),
        ({"text": "<think>Hm.</think>12"}, True),
        ({"text": "Hm.</think>12"}, True),
        ({"reasoning_tokens": 3}, True),
        ({"text": "12", "completion_tokens": 60}, True),
        ({"text": "12", "completion_tokens": 3}, False),
        ({"text": "12", "completion_tokens": None}, False),
    ],
)
def test_reasoning_shows_by_its_text_its_tag_or_its_tokens(reply: dict[str, Any], thought: bool) -> None:
    assert thought == reasoned(operation("item", **reply))


@pytest.mark.parametrize("name", [name for name in mini.DRAWN if name in variants.OTHERWISE])
def test_a_question_of_our_own_becomes_another_one(name: str) -> None:
    prompts = [item.prompt for item in mini.DRAWN[name]("variants", 30)]

    assert [] == [prompt for prompt in prompts if variants.OTHERWISE[name](prompt) == prompt]


@needs_sets
@pytest.mark.parametrize("name", [name for name in variants.OTHERWISE if not name.startswith("mini")])
def test_a_question_of_a_public_set_becomes_another_one(name: str) -> None:
    prompts = [item.question.prompt for item in sets.items(name, store())]
    same = [prompt for prompt in prompts if variants.OTHERWISE[name](prompt) == prompt]

    assert len(same) <= len(prompts) // 18, same[:2]  # those have their numbers in words; they are not taken
