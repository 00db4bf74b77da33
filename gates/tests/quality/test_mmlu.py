"""Letters read from replies: cases from public reports and their kinds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.quality import mmlu
from gates.quality.grading import Grade, Graded, graded_text
from gates.quality.mmlu import Problem


def problem(gold: str) -> Problem:
    return Problem("mmlu/logic/0", "logic", 0, "Which?", ("one", "two", "three", "four"), gold)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        pytest.param("B", "B. 4", id="M1"),
        pytest.param("B", "ANSWER: B", id="M1_upper_case"),
        pytest.param("B", "B) \\(6x^2+4x+6\\)", id="M1_bracket"),
        pytest.param("B", "**B**", id="M1_bold"),
        pytest.param("B", " (b) ", id="M1_small"),
        pytest.param("B", "**B.** two", id="M1_bold_with_text"),
        pytest.param("C", "Answer:\n\nAnswer: A looks likely at first. No.\nAnswer: C", id="M2"),
        pytest.param("C", "Antwort: Antwort: C", id="M2_other_language"),
        pytest.param("B", "The answer seems to be near 11.\nAnswer: B", id="M3"),
        pytest.param("D", "<think>The answer is A? Hmm.</think>D", id="M4"),
        pytest.param("B", "The correct answer is option (B), since it fits.", id="option"),
        pytest.param("B", "The final answer is:\n\n**B. two**", id="next_line"),
        pytest.param("B", "So $\\boxed{\\text{B}}$", id="box"),
        pytest.param("B", "Considering A and C.\nI take **B** here, although A is near.", id="bold_alone"),
        pytest.param("B", "A thing falls.\nHence B", id="article_first_line"),
        pytest.param("C", "I think that C fits a little better than a guess", id="last_line"),
        pytest.param("A", "Answer: A cat", id="cue_before_article"),
        pytest.param("A", "Option A is correct.", id="option_before_a_verdict"),
        pytest.param("A", "A is correct.", id="letter_before_a_verdict"),
        pytest.param("A", "Choice A fits best.", id="choice_before_any_word"),
        pytest.param("D", "**Answer**: D", id="marks_in_the_cue"),
        pytest.param("B", "The best choice is B.", id="choice_is"),
    ],
)
def test_the_letter_is_found(gold: str, text: str) -> None:
    assert Grade("pass", gold) == mmlu.grade(problem(gold), graded_text(text))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Answer depends on context.", id="M3"),
        pytest.param("", id="empty"),
        pytest.param("It is A matter of taste", id="article"),
        pytest.param("E", id="no_such_letter"),
        pytest.param("DNA and CO2", id="letters_in_words"),
        pytest.param("A-level", id="hyphen"),
    ],
)
def test_a_reply_without_a_letter_is_unparsed(text: str) -> None:
    assert "unparsed" == mmlu.grade(problem("A"), text).state


@settings(deadline=None)
@given(
    st.sampled_from("ABCD"), st.sampled_from(["{}", "{}.", "({})", "**{}**", "Answer: {}", "`{}`", "{}\n"])
)
def test_every_usual_form_of_every_letter_is_read(letter: str, form: str) -> None:
    assert letter == mmlu.extract(form.format(letter))


@settings(deadline=None)
@given(st.text(max_size=80))
def test_no_text_breaks_the_grader(text: str) -> None:
    assert mmlu.extract(text) in {None, "A", "B", "C", "D"}


def test_the_subset_is_chosen_by_hash_and_given_in_order() -> None:
    rows = [
        {
            "subject": "abstract_algebra",
            "index": place,
            "question": "",
            "choices": list("abcd"),
            "answer": "A",
        }
        for place in range(100)
    ]

    assert [13, 23, 31, 34, 36, 40, 67, 76, 86, 88] == [
        found.index for found in mmlu.subset(mmlu.problems(rows), rows=10)
    ]


def test_the_prompt_lists_the_choices_and_asks_for_a_letter() -> None:
    prompt = mmlu.question(problem("A")).prompt

    assert "Which?\n\nA. one\nB. two\nC. three\nD. four\n\nReply with the letter" in prompt


def test_the_mean_is_taken_over_subjects_and_leaves_out_what_was_not_graded() -> None:
    results = [
        Graded("mmlu/a/0", Grade("pass")),
        Graded("mmlu/a/1", Grade("fail")),
        Graded("mmlu/b/0", Grade("pass")),
        Graded("mmlu/b/1", Grade("infra")),
    ]

    assert 0.75 == mmlu.subject_mean(results)
    assert 0.0 == mmlu.subject_mean([])


@pytest.mark.parametrize("piece", ["answer: ", "the answer is ", "**", "option "])
def test_an_endless_repetition_is_read_to_its_end(piece: str) -> None:
    """Work that grows with the square of the length would take minutes here."""
    assert "C" == mmlu.extract(piece * (200_000 // len(piece)) + "\nC")
