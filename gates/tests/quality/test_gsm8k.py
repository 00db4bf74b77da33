"""Numbers read from replies: cases from public reports, their kinds, and any way to write a number."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.errors import CheckError
from gates.quality import gsm8k
from gates.quality.grading import graded_text
from gates.quality.gsm8k import Problem
from gates.quality.sets import fault_of


def problem(gold: str) -> Problem:
    return Problem("gsm8k/0", "How many?", Decimal(gold))


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        pytest.param("29", "Adding the tip, Rory pays $29.00.", id="G1"),
        pytest.param("29", "Adding the tip, Rory pays \\$29.00!", id="G1_escaped"),
        pytest.param("29", "So it is 29 % of all.", id="G1_per_cent"),
        pytest.param("72", "He sold 72 clips, altogether, in both months.", id="G2"),
        pytest.param("72", "72, of course,,, - .", id="G2_only_marks_after"),
        pytest.param("18", "<think>Example: #### 6. Now ours.</think>She makes 9 x 2.\n#### 18", id="G3"),
        pytest.param("18", "As in the example (#### 6), we get\n#### 18", id="G3_without_tags"),
        pytest.param("18", "#### Step 2: add\nThe sum is 18.\n#### 18\n#### Remark 4", id="G3_headings"),
        pytest.param("18", "#### **$18**", id="G3_bold"),
        pytest.param("18", "####\n18 apples", id="G3_next_line"),
        pytest.param("70000", "The profit is $200,000 - $130,000 = **$70,000**.", id="G4"),
        pytest.param("70000", "\\boxed{\\$70{,}000}", id="G4_box"),
        pytest.param("70000", "It is 70 000 in all", id="G4_space"),
        pytest.param("1234567", "#### 1\u202f234\u202f567", id="G4_thin_space"),
        pytest.param("18", "Answer: 18\n\nCheck: 3 x 6 = 18 in 2 steps", id="G6"),
        pytest.param("18", "She has **18** apples...", id="G6_full_stops"),
        pytest.param("18", "The **answer** is: **18**. I used 3 steps.", id="G6_marks_in_the_cue"),
        pytest.param("18", "The answer is 9 x 2 = 18, not 17.", id="G6_calculation"),
        pytest.param("18", "\\boxed{18\\text{ dollars}} in 3 steps", id="box"),
        pytest.param("18", "#### 18\nQuestion: Tom has 4.\n#### 4", id="invented_next_task"),
        pytest.param("-5", "#### \u22125", id="minus_sign"),
        pytest.param("-5", "The answer is -$5.", id="minus_before_currency"),
        pytest.param("-5", "The answer is $-5.", id="minus_after_currency"),
        pytest.param("5", "Results:\n- 5 apples", id="bullet"),
        pytest.param("8", "That leaves 20-8", id="between_numbers"),
        pytest.param("3", "He came 2nd with 3", id="ordinal"),
        pytest.param("3", "He took 3 and came 2nd", id="ordinal_last"),
        pytest.param("0.5", "It is .5", id="no_leading_digit"),
        pytest.param("0", "#### 0\n", id="nothing"),
        pytest.param("18", "#### Total = 9 x 2 = 18", id="calculation_behind_the_mark"),
        pytest.param("18", "x2 gives 18", id="digit_in_a_word"),
    ],
)
def test_a_right_number_passes_however_it_is_written(gold: str, text: str) -> None:
    found = gsm8k.grade(problem(gold), graded_text(text))

    assert ("pass", Decimal(gold)) == (found.state, Decimal(found.extracted))


@pytest.mark.parametrize("text", ["", "I do not know.", "No digits, only , and . and $", "#### none"])
def test_a_reply_without_a_number_is_unparsed(text: str) -> None:
    found = gsm8k.grade(problem("18"), text)

    assert ("unparsed", False) == (found.state, found.right)


def test_an_unclosed_thought_is_no_answer() -> None:
    assert "unparsed" == gsm8k.grade(problem("18"), graded_text("<think>It is 18")).state


def test_a_wrong_number_fails() -> None:
    assert "fail" == gsm8k.grade(problem("18"), "#### 19").state


def test_a_doubtful_label_is_tagged_and_graded_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """G5: labels are never repaired in silence."""
    monkeypatch.setattr(gsm8k, "DOUBTFUL", frozenset({"gsm8k/0"}))

    assert "its gold answer is doubtful" == fault_of("gsm8k/0")
    assert "" == fault_of("gsm8k/1")
    assert "fail" == gsm8k.grade(problem("18"), "#### 19").state
    assert "pass" == gsm8k.grade(problem("18"), "#### 18").state


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.sampled_from(["", ",", "\u202f", "\u00a0"]), st.sampled_from("$€£ "))
def test_every_spelling_of_a_number_is_read(value: int, separator: str, currency: str) -> None:
    spelled = f"{abs(value):,}".replace(",", separator)
    sign = "-" if value < 0 else ""

    assert value == gsm8k.extract(f"So the answer is {sign}{currency.strip()}{spelled}.")
    assert value == gsm8k.extract(f"#### {sign}{spelled}\n")


@settings(deadline=None)
@given(st.text(alphabet="0123456789.,-$ #\n=x*answer:is\\boxed{}", max_size=60))
def test_no_text_breaks_the_grader_and_the_same_text_gives_the_same_grade(text: str) -> None:
    assert gsm8k.grade(problem("18"), text) == gsm8k.grade(problem("18"), text)


def test_rows_become_problems() -> None:
    rows = iter([{"question": "How much?", "answer": "2*600=<<2*600=1200>>1200\n#### 1,200"}])

    assert [Problem("gsm8k/0", "How much?", Decimal(1200))] == list(gsm8k.problems(rows))


def test_a_gold_that_is_no_number_stops_the_gate() -> None:
    with pytest.raises(CheckError, match="gsm8k row 0: the gold answer is 'many'"):
        list(gsm8k.problems(iter([{"question": "", "answer": "#### many"}])))


def test_the_prompt_holds_the_question_and_asks_for_the_mark() -> None:
    prompt = gsm8k.question(problem("18")).prompt

    assert prompt.startswith("How many?\n\n")
    assert "\n#### <number>\n" in prompt


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer: 4\nanswer: 5 apples, 6 pears\nanswer: unclear", 5),
        ("The answer is 7, so the answer is\n\n8", 8),
        ("The answer is 3 + 4 = 7, as the answer is plain", 7),
        ("answer: -2 answer: none answer: none", -2),
    ],
)
def test_the_last_cue_with_a_number_on_its_line_counts(text: str, expected: int) -> None:
    assert Decimal(expected) == gsm8k.extract(text)


@pytest.mark.parametrize("piece", ["answer: ", "the answer is ", "#### ", "1 + ", "\\boxed{", "answer:\n"])
def test_an_endless_repetition_is_read_to_its_end(piece: str) -> None:
    """Work that grows with the square of the length would take a quarter of an hour here."""
    assert Decimal(29) == gsm8k.extract(piece * (200_000 // len(piece)) + "\n29")
