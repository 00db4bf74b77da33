"""Texts get the tokens of their tier, whatever the vocabulary."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.needle.hay import Prose
from gates.needle.prose import prose
from gates.needle.sizing import Ruler, cut, pieces, turned


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", 0, id="nothing"),
        pytest.param("One two, three.", 5, id="words_and_marks"),
        pytest.param("123456", 2, id="digits_by_three"),
        pytest.param("incomprehensibility", 2, id="long_word"),
        pytest.param("\n\n", 0, id="blanks"),
    ],
)
def test_pieces(written: str, expected: int) -> None:
    assert expected == pieces(written)


@given(st.integers(0, 3000), st.integers(0, 1000))
def test_a_cut_text_has_the_wanted_pieces_and_ends_a_sentence(wanted: int, seed: int) -> None:
    hay = cut(Prose().sentences(f"cut {seed}"), wanted)

    assert wanted - 3 < pieces(hay) <= wanted
    assert hay == "" or re.search(r"[.!?]\"?$", hay)


@given(st.integers(600, 6000), st.integers(0, 1000))
def test_turned_hay_has_the_same_sentences_and_another_front(characters: int, seed: int) -> None:
    hay = prose(f"turned {seed}", characters)
    other = turned(hay)

    assert sorted(hay.split()) == sorted(other.split())
    assert hay[:60] != other[:60]


@given(st.floats(0.8, 5), st.floats(0, 40), st.integers(50, 100), st.integers(1000, 2000))
def test_two_probes_give_back_the_line_through_them(
    rate: float, overhead: float, few: int, many: int
) -> None:
    ruler = Ruler.from_probes((few, round(overhead + rate * few)), (many, round(overhead + rate * many)))

    wanted = overhead + rate * 1500
    assert abs(ruler.tokens(1500) - wanted) < 0.01 * wanted + 3


@given(st.integers(100, 600_000), st.floats(0.8, 5))
def test_pieces_for_tokens_and_back(tokens: int, rate: float) -> None:
    ruler = Ruler(12.0, rate)

    assert abs(ruler.tokens(ruler.pieces(tokens)) - tokens) <= rate


@given(st.integers(-5, 10**9), st.integers(1, 5000))
def test_wrong_counts_cannot_make_a_text_without_end(prompt_tokens: int, counted: int) -> None:
    ruler = Ruler(10.0, 1.1).corrected(counted, prompt_tokens)

    assert ruler.pieces(1000) <= 1500
