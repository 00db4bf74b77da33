"""Token counts that cannot be true are told in words, whatever is missing of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gates.harness.counts import fault
from gates.harness.history import Event, Operation

GOOD = {"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 60, "total_tokens": 105}


def answered(**fields: Any) -> Operation:
    asked = Event(0, 0.0, "invoke", 0, "short", {"max_tokens": 8})
    return Operation(asked, Event(0, 1.0, "ok", 0, "short", {"text": "a code", **GOOD, **fields}))


def test_true_counts_have_no_fault() -> None:
    assert "" == fault(answered())
    assert "" == fault(answered(text="", completion_tokens=0, total_tokens=100))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"prompt_tokens": None}, "prompt_tokens is None", id="no_prompt"),
        pytest.param({"completion_tokens": 0}, "completion_tokens is 0 for a reply with text", id="text"),
        pytest.param({"text": "", "completion_tokens": None}, "is None for a reply without text", id="empty"),
        pytest.param({"cached_tokens": 101}, "cached_tokens is 101 of 100", id="cached"),
        pytest.param({"total_tokens": 90}, "total_tokens is 90", id="total"),
        pytest.param({"completion_tokens": 9, "total_tokens": 109}, "max_tokens was 8", id="beyond"),
        pytest.param({"finish_reason": "length"}, "length after 5 of 8", id="length"),
        pytest.param({"token_ids": [1, 2, 3]}, "3 token ids came", id="ids"),
        pytest.param({"fragments": 7}, "7 fragments", id="fragments"),
    ],
)
def test_what_cannot_be_true_is_said(fields: dict[str, Any], said: str) -> None:
    assert said in fault(answered(**fields))


def test_no_gap_in_the_counts_breaks_the_judge() -> None:
    """Every subset of the counts, with and without a text: a sentence or nothing, never an exception."""
    for text, *gone in itertools.product(["", "a code"], *[[True, False]] * len(GOOD)):
        counts = {name: None for name, away in zip(GOOD, gone, strict=True) if away}

        assert isinstance(fault(answered(text=text, **counts)), str)
