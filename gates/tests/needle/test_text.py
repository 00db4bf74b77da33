"""The wording of the needles and their places in the hay."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.needle import text
from gates.needle.prose import prose

DEPTHS = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def test_there_are_256_different_keys_of_one_lower_case_word() -> None:
    assert 256 == len(set(text.KEYS)) == len(text.KEYS)
    assert all(key.isalpha() and key.islower() for key in text.KEYS)


def test_sentences_and_questions_read_as_published() -> None:
    assert "The access code for the otter is 123987." == text.statement("otter", "123987")
    assert "What is the access code for the otter?" == text.question("otter") == text.questions(["otter"])
    wanted = "What are the access codes for the otter, the drum and the kite, in this order?"
    assert wanted == text.questions(["otter", "drum", "kite"])
    assert "What are the access codes for the otter and the drum, in this order?" == text.questions(
        ["otter", "drum"]
    )
    assert "And what is the access code for the otter?" == text.follow_up("otter")
    assert "The access code for the otter is not in the text." == text.absent("otter")


def test_the_user_message_holds_text_question_and_how_to_answer() -> None:
    wanted = (
        "Read the text and answer the question.\n\nTEXT\n\nQuestion: WHAT?\n"
        "Answer with the exact sentence from the text, or say that it is not in the text."
    )

    assert wanted == text.user_message("TEXT", "WHAT?")


@given(st.integers(0, 2**32))
def test_a_code_has_six_digits_and_two_different_halves(seed: int) -> None:
    code = text.draw_code(random.Random(seed))

    assert 6 == len(code)
    assert code.isdigit()
    assert "0" != code[0]
    assert code[:3] != code[3:]


@given(st.integers(0, 10_000), DEPTHS)
def test_needles_go_to_sentence_ends_in_order_of_depth_and_leave_the_hay_as_it_was(
    seed: int, depths: list[float]
) -> None:
    hay = prose(f"hay {seed}", 3000)
    needles = [(depth, f"NEEDLE {number}.") for number, depth in enumerate(depths)]

    document = text.document(hay, needles)

    bare = document
    for _, sentence in needles:
        assert 1 == document.count(sentence)
        bare = (
            bare.replace(f"{sentence} ", "", 1)
            if bare.startswith(sentence)
            else bare.replace(f" {sentence}", "", 1)
        )
    assert hay == bare
    by_place = sorted(needles, key=lambda needle: document.index(needle[1]))
    ends = [0, *text.sentence_ends(hay)]
    reached = [max(end for end in ends if end <= depth * len(hay)) for depth, _ in by_place]
    assert sorted(reached) == reached


def test_depth_is_kept_within_a_sentence() -> None:
    hay = prose("depth", 20_000)
    for depth in (0.05, 0.5, 0.95):
        place = text.document(hay, [(depth, "HERE.")]).index("HERE.")

        assert depth - 0.02 <= place / len(hay) <= depth + 0.001


@pytest.mark.parametrize("depth", [-0.1, 1.1, float("nan")])
def test_a_depth_outside_the_text_is_refused(depth: float) -> None:
    with pytest.raises(ValueError, match=r"allowed are 0\.0"):
        text.document("One. Two.", [(depth, "X.")])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("One. Two! Three?", [4, 9, 16], id="three_marks"),
        pytest.param('"Go." He went.', [5, 14], id="quote_after_the_stop"),
        pytest.param("Mr. Bell met Dr. Low. They left.", [21, 32], id="abbreviations"),
        pytest.param("J. S. Bach wrote. End.", [17, 22], id="initials"),
        pytest.param("It cost 3.50 today. Yes.", [19, 24], id="number_with_point"),
        pytest.param("no end", [], id="no_end"),
    ],
)
def test_sentence_ends(written: str, expected: list[int]) -> None:
    assert expected == text.sentence_ends(written)
