"""Right or wrong by whole values, never by wording."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.needle.grade import grade_absent, grade_codes, place, visible

CODES = st.integers(100_000, 999_999).map(str)
WORDS = st.text(alphabet="abc xyz.,!?\n", max_size=30)


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        pytest.param("It is 48,210.", True, id="thousands_comma"),
        pytest.param("It is 48 210.", True, id="thousands_blank"),
        pytest.param("148210", False, id="part_of_a_longer_number"),
        pytest.param("482101", False, id="a_digit_after"),
        pytest.param("48210-7", False, id="part_of_a_compound"),
        pytest.param("7-48210", False, id="part_of_a_compound_behind"),
        pytest.param("48210.5", False, id="part_of_a_decimal"),
        pytest.param("1,48210", False, id="after_a_comma_group"),
        pytest.param("x48210", False, id="part_of_a_word"),
        pytest.param("The code was 48210, as the text says.", True, id="other_wording"),
        pytest.param("**48210**", True, id="bold"),
        pytest.param("(48210)", True, id="brackets"),
        pytest.param("48210", True, id="alone"),
        pytest.param("48210.", True, id="full_stop"),
        pytest.param("code: 48210\n2. more", True, id="list_number_on_the_next_line"),
        pytest.param("", False, id="empty"),
        pytest.param("<think>48210</think>I do not know.", False, id="only_in_the_thoughts"),
        pytest.param("<think>48210", False, id="thoughts_never_closed"),
        pytest.param("<think>hm</think>48210", True, id="after_the_thoughts"),
    ],
)
def test_a_value_must_stand_alone(reply: str, right: bool) -> None:
    assert right == grade_codes(reply, ["48210"], []).right


@given(CODES, WORDS, WORDS)
def test_a_code_between_words_is_found(code: str, before: str, after: str) -> None:
    assert place(code, f"{before} {code} {after}") == len(before) + 1


@given(CODES, st.integers(0, 9), st.booleans())
def test_a_code_inside_a_longer_number_is_not_found(code: str, digit: int, behind: bool) -> None:
    assert place(code, f"is {code}{digit}." if behind else f"is {digit}{code}.") is None


@given(st.lists(CODES, min_size=2, max_size=4, unique=True), st.randoms(use_true_random=False))
def test_several_codes_must_come_in_the_order_asked(codes: list[str], chance: object) -> None:
    shuffled = list(codes)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]

    grade = grade_codes(", ".join(shuffled), codes, [])

    assert (shuffled == codes) == grade.right


def test_a_decoys_code_makes_an_answer_wrong_even_beside_the_right_one() -> None:
    grade = grade_codes("It is 111222 or 333444.", ["111222"], ["333444", "555666"])

    assert not grade.right
    assert ("333444",) == grade.foreign


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        pytest.param("The access code for the otter is not in the text.", True, id="as_asked"),
        pytest.param("I couldn't find it.", True, id="short_form"),
        pytest.param("There is no such code in the text.", True, id="other_words"),
        pytest.param("The access code for the otter is 123456.", False, id="invented"),
        pytest.param("It is not in the text, but it may be 123 456.", False, id="invented_beside_a_denial"),
        pytest.param("The access code for the otter is 8841.", False, id="another_form_of_value"),
        pytest.param("The otter swims.", False, id="neither"),
        pytest.param(" \n", False, id="empty"),
        pytest.param("<think>not there</think>", False, id="denied_in_the_thoughts_alone"),
        pytest.param("In chapter 12 there is no such code.", True, id="a_small_number_is_no_value"),
    ],
)
def test_an_absent_needle_must_be_denied_without_a_value(reply: str, right: bool) -> None:
    assert right == grade_absent(reply, ["555666"]).right


@given(st.text(max_size=80), st.lists(CODES, max_size=3))
def test_grading_never_raises_and_never_finds_what_is_not_there(reply: str, codes: list[str]) -> None:
    grade_absent(reply, codes)
    if codes and not any(character.isdigit() for character in reply):
        assert not grade_codes(reply, codes, []).right


def test_thoughts_are_not_visible() -> None:
    assert "b" == visible("<think>a</think>b")
    assert "c" == visible("a</think>b</think>c")
    assert "a" == visible("a<think>b")
