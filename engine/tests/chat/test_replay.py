"""Blocks come back as they were written, for just the calls they held, and within their limits."""

from __future__ import annotations

from typing import Any

import pytest

from engine.chat.replay import Replay
from engine.chat.request import AssistantTurn, ChatRequest, ToolCall, ToolResult, UserText, UserTurn
from engine.chat.template import render

CALLS = (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g", "{}"))
BLOCK = "\n\n<｜DSML｜tool_calls>  odd\n</｜DSML｜tool_calls>"


def remembering() -> Replay:
    replay = Replay()
    replay.remember(BLOCK, CALLS)
    return replay


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        pytest.param(CALLS, True, id="same"),
        pytest.param((ToolCall("c1", "f", '{"a":1.0}'), CALLS[1]), True, id="other_blanks"),
        pytest.param((ToolCall("c1", "f", '{"a": 2}'), CALLS[1]), False, id="other_arguments"),
        pytest.param((ToolCall("c1", "h", '{"a": 1}'), CALLS[1]), False, id="other_name"),
        pytest.param((ToolCall("c1", "f", "broken"), CALLS[1]), False, id="broken_arguments"),
        pytest.param(CALLS[:1], False, id="one_is_missing"),
        pytest.param(CALLS[::-1], False, id="other_order"),
        pytest.param((ToolCall(None, "f", '{"a": 1}'), CALLS[1]), False, id="no_id"),
        pytest.param((), False, id="none"),
    ],
)
def test_a_block_is_found_by_just_its_calls(calls: tuple[ToolCall, ...], found: bool) -> None:
    assert (BLOCK if found else None) == remembering().find(calls)


def test_a_prompt_holds_the_block_as_it_was_written() -> None:
    turns = (
        UserTurn((UserText("q"),)),
        AssistantTurn("said", "", CALLS),
        UserTurn((ToolResult("c1", "x"),)),
    )
    segments = render(ChatRequest(turns=turns), replay=remembering())
    canonical = render(ChatRequest(turns=turns))

    assert f"said{BLOCK}" in "".join(segment.text for segment in segments)
    assert "｜DSML｜" in [segment.text for segment in segments if segment.is_marker]
    assert "odd" not in "".join(segment.text for segment in canonical)


@pytest.mark.parametrize("limits", [{"max_calls": 20}, {"max_characters": 10 * len(BLOCK)}])
def test_ten_thousand_blocks_stay_within_the_limits(limits: dict[str, Any]) -> None:
    replay = Replay(**limits)
    for number in range(10_000):
        replay.remember(BLOCK, [ToolCall(f"{number}a", "f", "{}"), ToolCall(f"{number}b", "f", "{}")])

    assert 20 == len(replay)
    assert BLOCK == replay.find([ToolCall("9999a", "f", "{}"), ToolCall("9999b", "f", "{}")])
    assert None is replay.find([ToolCall("1a", "f", "{}"), ToolCall("1b", "f", "{}")])
