"""The graded text, what is never graded, and what spoils a run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.harness.reply import ClientError, DeadlinePassed, Malformed, Refused, Reply, Usage
from gates.quality import asking, gsm8k, mmlu
from gates.quality.asking import Question
from gates.quality.grading import Grade, Graded, grade_outcome, graded_text, seen_text, spoiled
from gates.tests.quality.records import BOUNDS


def reply(text: str, finish: str = "stop") -> Reply:
    return Reply(text, "", finish, Usage(), 1.0, None)


def letter_b(text: str) -> Grade:
    return mmlu.grade(mmlu.Problem("mmlu/x/0", "x", 0, "", ("", "", "", ""), "B"), text)


def number_500(text: str) -> Grade:
    return gsm8k.grade(next(gsm8k.problems(iter([{"question": "", "answer": "#### 500"}]))), text)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("plain", "plain", id="no_thought"),
        pytest.param("<think>a</think>b", "b", id="closed"),
        pytest.param("<think>a", "", id="never_closed"),
        pytest.param("a</think>b", "b", id="closing_tag_only"),
        pytest.param("<think>a</think>b</think>c", "c", id="last_closing_tag"),
        pytest.param("<think>a</think>b<think>c", "b", id="opened_again"),
    ],
)
def test_thoughts_are_not_graded(content: str, expected: str) -> None:
    assert expected == graded_text(content)


@pytest.mark.parametrize(
    "blank",
    [
        " \n\t",
        "\u200b",
        "\ufeff",
        "\u00ad\u2060",
        "\u2800",
        "\u3164",
        "\x00",
        "\ufe0f",
        "<think>x</think>\u200b",
    ],
)
def test_a_text_of_which_nothing_can_be_seen_is_empty(blank: str) -> None:
    assert "" == seen_text(blank)
    assert f"{graded_text(blank)}x" == seen_text(f"{blank}x")


@settings(deadline=None)
@given(st.text(), st.text())
def test_nothing_before_the_last_closing_tag_is_graded(thought: str, answer: str) -> None:
    assert graded_text(answer.replace("</think>", "")) == graded_text(
        f"{thought}</think>{answer.replace('</think>', '')}"
    )


@pytest.mark.parametrize("grade", [letter_b, number_500], ids=["mmlu", "gsm8k"])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Refused(500, "internal error", None), id="M4"),
        pytest.param(Refused(503, '{"error":"answer: B 500"}', None), id="R3"),
        pytest.param(Malformed("no choices: answer: B #### 500"), id="empty_choices"),
        pytest.param(DeadlinePassed("no end"), id="timeout"),
    ],
)
def test_an_error_is_infra_in_every_set_alike(error: ClientError, grade: object) -> None:
    assert callable(grade)
    found = grade_outcome("item", error, grade)

    assert ("infra", None) == (found.grade.state, found.grade.right)


def test_a_reply_cut_by_the_token_limit_is_graded_and_marked() -> None:
    assert Graded("item", Grade("pass", "B"), truncated=True) == grade_outcome(
        "item", reply("B", "length"), letter_b
    )


def test_thoughts_of_a_reply_are_stripped_before_it_is_graded() -> None:
    assert "pass" == grade_outcome("item", reply("<think>A</think>B"), letter_b).grade.state


def test_more_than_one_item_in_two_hundred_without_reply_spoils_the_run() -> None:
    good = [Graded(f"{place}", Grade("pass")) for place in range(199)]
    lost = Graded("lost", Grade("infra"))

    assert () == spoiled([*good, lost], BOUNDS)
    assert "1.0% of the items have no usable reply" in spoiled([*good, lost, lost], BOUNDS)[0]


def test_more_than_one_cut_reply_in_a_hundred_spoils_the_run() -> None:
    good = [Graded(f"{place}", Grade("pass")) for place in range(99)]
    cut = Graded("cut", Grade("fail"), truncated=True)

    assert () == spoiled([*good, cut], BOUNDS)
    assert "cut by the token limit" in spoiled([*good, cut, cut], BOUNDS)[0]
    assert ("no item was asked",) == spoiled([], BOUNDS)


@pytest.mark.parametrize("arm", ["fast", "thinking"])
def test_no_request_has_stop_strings_and_each_says_whether_to_think(arm: asking.Arm) -> None:
    """C1 and R1."""
    body = asking.request(Question("item", "Hello", 10), arm=arm)

    assert not {"stop", "stop_sequences", "stop_token_ids"} & set(body)
    assert {"type": "enabled" if arm == "thinking" else "disabled"} == body["thinking"]
    assert [{"role": "user", "content": "Hello"}] == body["messages"]
    assert 0.0 == body["temperature"]
