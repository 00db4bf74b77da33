"""Tests of the records of items: all come back as written, and a kill tears one line at most."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.errors import CheckError
from gates.quality import items
from gates.quality.items import ItemRecord

ONE = ItemRecord(
    set="gsm8k",
    arm="fast",
    item="gsm8k/17",
    category="gsm8k",
    cluster="gsm8k/17",
    repeat=0,
    server="candidate",
    prompt_sha256="0" * 64,
    text="Ten.\n#### 10",
    reasoning_length=0,
    token_ids=(5, 6, 7),
    extracted="10",
    state="pass",
    note="",
    score=1.0,
    correct=True,
    outcome="answered",
    finish_reason="stop",
    prompt_tokens=40,
    completion_tokens=3,
    cached_tokens=0,
    ttft_s=0.25,
    seconds=0.5,
    retries=0,
    grader_version="1",
)


def with_text(number: int, text: str) -> ItemRecord:
    """The record of another item with this text."""
    return dataclasses.replace(ONE, item=f"gsm8k/{number}", text=text)


@settings(max_examples=20, deadline=None)  # each record waits for the disk
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), st.integers(0, 400))
def test_records_come_back_as_written_but_for_a_torn_last_line(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], torn: int
) -> None:
    path = tmp_path_factory.mktemp("items") / "items.jsonl"
    records = [with_text(number, text) for number, text in enumerate(texts)]
    items.append(path, records)
    whole = path.read_bytes()
    items.append(path, [ONE])
    path.write_bytes(path.read_bytes()[: len(whole) + torn])

    assert items.read(path) == records


def test_a_record_goes_behind_the_whole_ones_and_not_behind_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    items.append(path, [ONE])
    with path.open("ab") as file:
        file.write(b'{"set": "gsm8k", "ar')
    items.append(path, [with_text(18, "Twelve.")])

    assert items.read(path) == [ONE, with_text(18, "Twelve.")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"set": "gsm8k"}, "it lacks"),
        ({**items.as_json(ONE), "colour": 1}, "unknown .'colour'"),
        ({**items.as_json(ONE), "outcome": "lost"}, "outcome is 'lost'"),
        ({**items.as_json(ONE), "state": ["pass"]}, r"state is \['pass'\]"),
        ({**items.as_json(ONE), "retries": 10**400}, "retries is .*, allowed: a number"),
        ({**items.as_json(ONE), "text": None}, "text is None, allowed: a text"),
        ({**items.as_json(ONE), "state": "fail"}, "state fail goes with correct False and score 0.0, not"),
        ({**items.as_json(ONE), "score": 0.0}, "state pass goes with correct True and score 1.0, not"),
    ],
)
def test_a_line_that_is_no_record_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        items.from_json(values)


def test_a_damaged_line_in_the_middle_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_bytes(b"[1]\n")
    items.append(path, [ONE])

    with pytest.raises(CheckError, match=r"items.jsonl, line 1"):
        items.read(path)


def test_parts_merge_to_the_same_records_in_any_order() -> None:
    first, second = with_text(1, "a"), with_text(2, "b")

    assert items.merged([[first], [second, ONE]]) == items.merged([[second], [ONE, first, second]])


def test_two_different_answers_to_one_item_do_not_merge() -> None:
    with pytest.raises(CheckError, match=r"gsm8k/1 .fast, candidate. stands in two records"):
        items.merged([[with_text(1, "a")], [with_text(1, "b")]])
