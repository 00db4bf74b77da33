"""JSON that can be written again: numbers that exist, characters that are whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.strict import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # halves of characters too


@given(VALUES, st.booleans())
def test_it_reads_what_was_written(value: object, ascii_only: bool) -> None:
    assert value == read_json(json.dumps(value, ensure_ascii=ascii_only))


@given(ANY_TEXT, ANY_TEXT)
def test_no_half_of_a_character_is_left(key: str, value: str) -> None:
    found = read_json(json.dumps({key: [value]}))
    [(read, [entry])] = found.items()  # type: ignore[attr-defined]

    assert all(text.encode().decode() == text for text in (read, entry))
    assert len(entry) <= len(value)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "[-1e400]", "1" * 5000, "{", "'a'"])
def test_what_could_not_be_written_again_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|limit|Expecting"):
        read_json(text)
