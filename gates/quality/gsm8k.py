"""GSM8K: school arithmetic in words; the answer is a number.

Owns its prompt and which number of a reply is the answer; a version of each stands in the verdict.
Labels that are known to be doubtful are tagged, never repaired: both builds lose or win alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from gates.errors import CheckError
from gates.quality import numerals
from gates.quality.asking import Question
from gates.quality.grading import Grade
from gates.quality.numerals import NUMBER

PROMPT_VERSION: Final = "1"
GRADER_VERSION: Final = "3"
FILE: Final = "gsm8k/test.jsonl"
MAX_TOKENS: Final = 2048
FAULT: Final = "its gold answer is doubtful"
DOUBTFUL: Final[frozenset[str]] = frozenset()  # ids whose gold answer is disputed; shown in the report

_OPERATION: Final = re.compile(r"\s*[-+*/x\u00d7\u00f7\u2212]\s*")
_NEXT_TASK: Final = re.compile(r"^\W{0,3}(?:Question|Q)\s*:", re.MULTILINE)
_CUE: Final = re.compile(r"\banswer(?:\s+is)?\s*:|\banswer\s+is\b", re.IGNORECASE)
_SAID: Final = re.compile(r"\S")
_LEAD: Final = re.compile(r"(?:\s|[:=({\[]|(?:the\s+)?(?:final\s+)?answer(?:\s+is)?)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One row: the question and its gold number."""

    id: str
    question: str
    gold: Decimal


def problems(rows: Iterator[Mapping[str, Any]]) -> Iterator[Problem]:
    """The problems of the set's rows, in their order; CheckError where a gold is not a number."""
    for place, row in enumerate(rows):
        gold = re.sub(r"[,\s]", "", str(row["answer"]).rpartition("####")[2])
        if not re.fullmatch(r"-?\d+(?:\.\d+)?", gold):
            raise CheckError(f"gsm8k row {place}: the gold answer is '{gold}', which is not a number")
        yield Problem(f"gsm8k/{place}", str(row["question"]), Decimal(gold))


def question(problem: Problem) -> Question:
    """How the problem is asked."""
    prompt = (
        f"{problem.question}\n\n"
        "Work it out step by step. Finish with a line of the form\n#### <number>\nand nothing after it."
    )
    return Question(problem.id, prompt, MAX_TOKENS)


def extract(text: str) -> Decimal | None:
    """The number that a reply answers with; None where it names none.

    In this order: the last `####`, the last box, the last cue, the last number that stands alone.
    """
    clean = numerals.plain(_own_answer(text))
    for places in (_after_marks(clean), _in_boxes(clean)):
        for place in reversed(places):
            if place is not None:
                return place
    cued = _after_cues(clean)
    if cued is not None:
        return cued
    numbers = list(NUMBER.finditer(clean))
    return numerals.value(numbers[-1], clean) if numbers else None


def grade(problem: Problem, text: str) -> Grade:
    """Right when the number equals the gold one as a decimal: 29.00 is 29."""
    found = extract(text)
    if found is None:
        return Grade("unparsed", note="no number in the reply")
    return Grade("pass" if found == problem.gold else "fail", f"{found:f}")


def _own_answer(text: str) -> str:
    """The text before a next task that the model invented."""
    for start in _NEXT_TASK.finditer(text):
        if text[: start.start()].strip():
            return text[: start.start()]
    return text


def _after_marks(text: str) -> list[Decimal | None]:
    """What stands directly behind each `####`; None behind a mark that is a heading."""
    found = []
    for mark in re.finditer(r"#{4}(?!#)", text):
        line = text[mark.end() :].lstrip().partition("\n")[0]
        leading = _leading(line)
        found.append(_leading(line.rpartition("=")[2]) if leading is None else leading)
    return found


def _in_boxes(text: str) -> list[Decimal | None]:
    return [_first(box.group(1)) for box in re.finditer(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}", text)]


def _after_cues(text: str) -> Decimal | None:
    """The first number on the line behind the last cue that has one; no part is searched twice for it."""
    searched = len(text)
    for cue in reversed(list(_CUE.finditer(text))):
        said = _SAID.search(text, cue.end())
        start = said.start() if said else len(text)
        line_end = text.find("\n", start)
        end = len(text) if line_end < 0 else line_end
        if NUMBER.search(text[start : min(end, searched)]):
            return _first(text[start:end])
        searched = cue.start()
    return None


def _leading(text: str) -> Decimal | None:
    """The number at the very front of a text, cue words and brackets aside."""
    lead = _LEAD.match(text)
    start = lead.end() if lead else 0
    number = NUMBER.match(text, start)
    return _result(number, text) if number else None


def _first(text: str) -> Decimal | None:
    number = NUMBER.search(text)
    return _result(number, text) if number else None


def _result(number: re.Match[str], text: str) -> Decimal:
    """The number itself, or what the calculation that begins with it comes to in the text."""
    end = number
    while operation := _OPERATION.match(text, end.end()):
        following = NUMBER.match(text, operation.end())
        if not following:
            return numerals.value(number, text)
        end = following
    equals = re.compile(r"\s*=\s*").match(text, end.end())
    total = NUMBER.match(text, equals.end()) if equals else None
    return numerals.value(total or number, text)
