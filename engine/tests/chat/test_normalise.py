"""Roles, parts, merging and refusals of the `messages` member."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.chat.normalise import normalise
from engine.chat.request import AssistantTurn, Effort, ToolResult, UserText, UserTurn
from engine.chat.thinking import Thinking, read_thinking
from engine.errors import RequestError

USER = {"role": "user", "content": "q"}
CALL = {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        pytest.param(None, "messages", id="absent"),
        pytest.param([], "messages", id="empty"),
        pytest.param("hi", "messages", id="string"),
        pytest.param([1], "messages.0", id="entry_is_a_number"),
        pytest.param([{"role": "robot", "content": ""}], "messages.0.role", id="unknown_role"),
        pytest.param([{"role": ["user"]}], "messages.0.role", id="role_is_a_list"),
        pytest.param([{"role": "user", "content": 3}], "messages.0.content", id="content_is_a_number"),
        pytest.param([{"role": "system", "content": "s"}], "messages", id="only_system"),
        pytest.param([USER, {"role": "assistant", "tool_calls": [CALL]}], "messages", id="ends_with_calls"),
        pytest.param(
            [USER, {"role": "assistant", "tool_calls": [{}]}], "messages.1.tool_calls.0.function.name"
        ),
        pytest.param(
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}],
                }
            ],
            "messages.0.content.1",
            id="image",
        ),
    ],
)
def test_a_wrong_message_is_refused_by_its_path(messages: object, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise(messages)

    assert param == caught.value.param


def test_assistant_messages_in_a_row_become_one_turn() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "assistant", "content": "b", "reasoning": "s", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "t"},
    ]
    turn = normalise(messages).turns[1]

    assert isinstance(turn, AssistantTurn)
    assert ("ab", "rs", '{"a": 1}') == (turn.content, turn.reasoning, turn.calls[0].arguments)


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
def test_a_hundred_thousand_messages_in_a_row_are_joined_at_once(role: str) -> None:
    """They fit a body; joined one by one they kept a thread for a minute and more."""
    many = [{"role": role, "content": "a"}] * 100_000
    began = time.thread_time()
    found = normalise([{"role": "user", "content": "Hi"}, *many])

    assert 20.0 > time.thread_time() - began
    assert (2 if role == "assistant" else 1) == len(found.turns)


def test_an_empty_assistant_message_at_the_end_is_dropped() -> None:
    assert normalise([USER, {"role": "assistant", "content": ""}]) == normalise([USER])


def test_blank_reasoning_counts_as_none() -> None:
    padded = [USER, {"role": "assistant", "content": "a", "reasoning_content": " "}, USER]
    bare = [USER, {"role": "assistant", "content": "a"}, USER]

    assert normalise(bare) == normalise(padded)


def test_results_follow_the_order_of_the_calls_and_texts_keep_their_slots() -> None:
    calls = [{"id": name, "function": {"name": "f"}} for name in ("a", "b", "c")]
    messages = [
        USER,
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "user", "content": "note"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    expected = (ToolResult("a", "1"), UserText("note"), ToolResult("b", "2"), ToolResult("c", "3"))

    assert UserTurn(expected) == normalise(messages).turns[2]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({}, Thinking(True, Effort.LOW), id="default"),
        pytest.param({"thinking": {"type": "disabled"}}, Thinking(False, Effort.NONE), id="object_off"),
        pytest.param({"thinking": {"type": "adaptive"}}, Thinking(True, Effort.LOW), id="object_on"),
        pytest.param(
            {"think": False, "reasoning_effort": "max"}, Thinking(False, Effort.NONE), id="off_beats"
        ),
        pytest.param(
            {"think": True, "reasoning_effort": "none"}, Thinking(False, Effort.NONE), id="none_beats"
        ),
        pytest.param({"model": "deepseek-chat"}, Thinking(False, Effort.NONE), id="model_off"),
        pytest.param({"model": "deepseek-chat", "think": True}, Thinking(True, Effort.LOW), id="switch_wins"),
        pytest.param({"reasoning_effort": "xhigh"}, Thinking(True, Effort.HIGH), id="xhigh"),
        pytest.param({"reasoning": {"effort": "max"}}, Thinking(True, Effort.MAX), id="nested"),
        pytest.param(
            {"chat_template_kwargs": {"enable_thinking": False, "tokenize": True}},
            Thinking(False, Effort.NONE),
            id="template_kwargs",
        ),
        pytest.param({"thinking": None, "think": None}, Thinking(True, Effort.LOW), id="nulls"),
    ],
)
def test_the_first_switch_present_decides(body: dict[str, Any], expected: Thinking) -> None:
    assert expected == read_thinking(body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param({"reasoning_effort": "extreme"}, "reasoning_effort", id="effort"),
        pytest.param({"enable_thinking": "yes"}, "enable_thinking", id="switch"),
        pytest.param({"chat_template_kwargs": [1]}, "chat_template_kwargs", id="kwargs"),
    ],
)
def test_a_wrong_switch_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_thinking(body)

    assert param == caught.value.param
