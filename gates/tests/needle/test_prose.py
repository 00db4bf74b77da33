"""Generated prose: readable, seeded, the same everywhere, and free of anything that a needle is made of."""

from __future__ import annotations

import hashlib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.needle import prose, text, words

SEEDS = st.text(max_size=40)
GOLDEN = "7a377d966aceceb31218ef12f06ee611671c0cbb1035d6f684cee9d17acee529"  # of 20,000 characters


def all_words() -> set[str]:
    """Every word of the word stock, in lower case."""
    lists = (value for value in vars(words).values() if isinstance(value, tuple))
    return {part.lower() for entries in lists for entry in entries for part in re.split(r"[ /-]", entry)}


@given(SEEDS, st.integers(0, 5000))
def test_prose_is_at_most_as_long_as_asked_and_has_no_digit(seed: str, characters: int) -> None:
    written = prose.prose(seed, characters)

    assert len(written) <= characters
    assert not re.search(r"\d", written)
    assert "access code" not in written


@given(SEEDS)
def test_a_longer_text_of_a_seed_starts_with_the_shorter_one(seed: str) -> None:
    assert prose.prose(seed, 3000).startswith(prose.prose(seed, 1200))


def test_prose_does_not_change_between_versions() -> None:
    """The embedded model was measured on these texts: a change of a word is a change of every case."""
    digest = hashlib.sha256(prose.prose("golden", 20_000).encode()).hexdigest()

    assert GOLDEN == digest


def test_no_word_of_the_prose_is_a_needle_key() -> None:
    assert set() == all_words() & set(text.KEYS)
    assert set() == set(re.findall(r"[a-z]+", prose.prose("keys", 400_000).lower())) & set(text.KEYS)


def test_paragraphs_have_three_to_seven_sentences() -> None:
    sentences = itertools.islice(prose.sentences("paragraphs"), 500)
    paragraphs = "".join(sentences).split("\n\n")[:-1]
    sizes = {len(text.sentence_ends(paragraph)) for paragraph in paragraphs}

    assert min(sizes) >= 3
    assert max(sizes) <= 9  # a line of dialogue can hold two or three sentences


def test_two_seeds_share_no_long_run_of_text() -> None:
    first, second = prose.prose("one", 40_000), prose.prose("two", 40_000)
    runs = {first[place : place + 200] for place in range(len(first) - 200)}

    assert set() == runs & {second[place : place + 200] for place in range(len(second) - 200)}


def test_every_sentence_ends_with_a_mark_and_starts_with_a_capital_or_a_quote() -> None:
    for sentence in itertools.islice(prose.sentences("form"), 2000):
        assert re.fullmatch(r"[A-Z\"].*[.!?]\"?( |\n\n)", sentence), sentence


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed are 0 or more"):
        prose.prose("x", -1)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param("open", "opened", id="regular"),
        pytest.param("blame/blamed", "blamed", id="given"),
        pytest.param("sail-away/sailed-away", "sailed away", id="two_words"),
    ],
)
def test_past_tense(entry: str, expected: str) -> None:
    assert expected == prose.past(entry)


@pytest.mark.parametrize(
    ("noun", "expected"),
    [("box", "boxes"), ("loaf", "loaves"), ("cherry", "cherries"), ("toy", "toys"), ("letter", "letters")],
)
def test_plural(noun: str, expected: str) -> None:
    assert expected == prose.plural(noun)
