"""The 25 kinds of instructions of IFEval, checked after the published rules (Zhou et al. 2023).

Every checker is a pure function of the text and the instruction's own arguments; none knows rows and scores.
Unlike the reference, a text whose language nobody can tell follows no language instruction, and the letters
'#' and '!' are counted as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.errors import CheckError
from gates.quality.language import count_capital_words, count_sentences, count_words, language_of

_OPTIONS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_POSTSCRIPTS: Final = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
_STOPS: Final = frozenset(".,?!'\"")


@dataclass(frozen=True, slots=True)
class Checker:
    """One kind: the arguments that it needs, and the question whether a text follows it."""

    arguments: frozenset[str]
    follows: Callable[..., bool]


def follows(kind: str, arguments: Mapping[str, Any], text: str) -> bool:
    """Whether a text follows one instruction; an empty one follows none.

    CheckError for an unknown kind and for missing or unknown arguments: a fault of the data is never a pass.
    """
    checker = CHECKERS.get(kind)
    if checker is None:
        raise CheckError(f"ifeval: there is no instruction of kind '{kind}'; known are {', '.join(CHECKERS)}")
    given = {name: value for name, value in arguments.items() if value is not None}
    if set(given) != checker.arguments:
        raise CheckError(
            f"ifeval: {kind} has the arguments {sorted(given)}, it must have {sorted(checker.arguments)}"
        )
    return bool(text.strip()) and checker.follows(text, **given)


def _compared(count: int, relation: str, wanted: int) -> bool:
    if relation not in ("at least", "less than"):
        raise CheckError(f"ifeval: the relation is '{relation}', allowed are 'at least' and 'less than'")
    return count >= wanted if relation == "at least" else count < wanted


def _occurrences(text: str, keyword: str) -> int:
    return len(re.findall(re.escape(keyword), text, re.IGNORECASE))


def _existence(text: str, *, keywords: Sequence[str]) -> bool:
    return all(_occurrences(text, keyword) for keyword in keywords)


def _frequency(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    return _compared(_occurrences(text, keyword), relation, frequency)


def _forbidden_words(text: str, *, forbidden_words: Sequence[str]) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


def _letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compared(text.lower().count(letter.lower()), let_relation, let_frequency)


def _response_language(text: str, *, language: str) -> bool:
    return language_of(text) == language


def _number_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    return _compared(count_sentences(text), relation, num_sentences)


def _number_words(text: str, *, num_words: int, relation: str) -> bool:
    return _compared(count_words(text), relation, num_words)


def _number_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    """Paragraphs stand between lines of three asterisks; only the first and the last may be empty."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    return all(parts[1:-1]) and sum(map(bool, parts)) == num_paragraphs


def _nth_paragraph_first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs stand between empty lines; the word is compared without case and up to its first mark."""
    parts = text.split("\n\n")
    count = sum(bool(part.strip()) for part in parts)
    if nth_paragraph > count or not parts[nth_paragraph - 1].strip():
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    end = next((place for place, letter in enumerate(word) if letter in _STOPS), len(word))
    return count == num_paragraphs and word[:end].lower() == first_word.lower()


def _number_placeholders(text: str, *, num_placeholders: int) -> bool:
    whole = "\n".join(_up_to(line, "]") for line in text.split("\n"))
    return len(re.findall(r"\[[^\n\]]*\]", whole)) >= num_placeholders


def _postscript(text: str, *, postscript_marker: str) -> bool:
    pattern = _POSTSCRIPTS.get(postscript_marker, re.escape(postscript_marker.lower()))
    return re.search(pattern, text.lower()) is not None


def _number_bullet_lists(text: str, *, num_bullets: int) -> bool:
    stars = re.findall(r"^\s*\*[^*].*$", text, re.MULTILINE)
    dashes = re.findall(r"^\s*-.*$", text, re.MULTILINE)
    return len(stars) + len(dashes) == num_bullets


def _constrained_response(text: str) -> bool:
    return any(option in text for option in _OPTIONS)


def _number_highlighted_sections(text: str, *, num_highlights: int) -> bool:
    """A part between asterisks counts; one between double asterisks does, too."""
    single = sum(bool(found.strip("*").strip()) for found in re.findall(r"\*[^\n*]*\*", text))
    double = sum(bool(found[2:-2].strip()) for found in re.findall(r"\*\*[^\n*]*\*\*", text))
    return single + double >= num_highlights


def _multiple_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"{re.escape(section_spliter)}\s?\d+", text)) >= num_sections


def _json_format(text: str) -> bool:
    body = text.strip()
    for label in ("```json", "```Json", "```JSON", "```"):
        body = body.removeprefix(label)
    try:
        json.loads(body.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _title(text: str) -> bool:
    whole = "\n".join(_up_to(line, ">>") for line in text.split("\n"))
    return any(found.lstrip("<").rstrip(">").strip() for found in re.findall(r"<<[^\n]+>>", whole))


def _up_to(line: str, closing: str) -> str:
    """The line up to its last closing mark; behind that every opening one would be searched for in vain."""
    return line[: line.rfind(closing) + len(closing)] if closing in line else ""


def _two_responses(text: str) -> bool:
    """Two different replies with six asterisks between; only the first and the last part may be empty."""
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


def _repeat_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _end_checker(text: str, *, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def _quotation(text: str) -> bool:
    whole = text.strip()
    return len(whole) > 1 and whole[0] == whole[-1] == '"'


def _capital_word_frequency(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    return _compared(count_capital_words(text), capital_relation, capital_frequency)


def _english_capital(text: str) -> bool:
    return text.isupper() and language_of(text) == "en"


def _english_lowercase(text: str) -> bool:
    return text.islower() and language_of(text) == "en"


def _no_comma(text: str) -> bool:
    return "," not in text


def _checker(follows: Callable[..., bool], *arguments: str) -> Checker:
    return Checker(frozenset(arguments), follows)


CHECKERS: Final[Mapping[str, Checker]] = {
    "keywords:existence": _checker(_existence, "keywords"),
    "keywords:frequency": _checker(_frequency, "keyword", "frequency", "relation"),
    "keywords:forbidden_words": _checker(_forbidden_words, "forbidden_words"),
    "keywords:letter_frequency": _checker(_letter_frequency, "letter", "let_frequency", "let_relation"),
    "language:response_language": _checker(_response_language, "language"),
    "length_constraints:number_sentences": _checker(_number_sentences, "num_sentences", "relation"),
    "length_constraints:number_paragraphs": _checker(_number_paragraphs, "num_paragraphs"),
    "length_constraints:number_words": _checker(_number_words, "num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": _checker(
        _nth_paragraph_first_word, "num_paragraphs", "nth_paragraph", "first_word"
    ),
    "detectable_content:number_placeholders": _checker(_number_placeholders, "num_placeholders"),
    "detectable_content:postscript": _checker(_postscript, "postscript_marker"),
    "detectable_format:number_bullet_lists": _checker(_number_bullet_lists, "num_bullets"),
    "detectable_format:constrained_response": _checker(_constrained_response),
    "detectable_format:number_highlighted_sections": _checker(_number_highlighted_sections, "num_highlights"),
    "detectable_format:multiple_sections": _checker(_multiple_sections, "section_spliter", "num_sections"),
    "detectable_format:json_format": _checker(_json_format),
    "detectable_format:title": _checker(_title),
    "combination:two_responses": _checker(_two_responses),
    "combination:repeat_prompt": _checker(_repeat_prompt, "prompt_to_repeat"),
    "startend:end_checker": _checker(_end_checker, "end_phrase"),
    "startend:quotation": _checker(_quotation),
    "change_case:capital_word_frequency": _checker(
        _capital_word_frequency, "capital_frequency", "capital_relation"
    ),
    "change_case:english_capital": _checker(_english_capital),
    "change_case:english_lowercase": _checker(_english_lowercase),
    "punctuation:no_comma": _checker(_no_comma),
}
