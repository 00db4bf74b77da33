"""MMLU: four choices; the answer is a letter.

Owns its prompt, how a letter is read from a reply, the score, and the fixed subsets (rows a subject).
A subset's mean is taken over subjects and must never be compared with the mean over all rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from gates.quality.asking import Question
from gates.quality.grading import Grade, Graded

PROMPT_VERSION: Final = "1"
GRADER_VERSION: Final = "3"
FILE: Final = "mmlu/test.jsonl"
MAX_TOKENS: Final = 1024
LETTERS: Final = "ABCD"

_ALONE: Final = re.compile(r"[\W_]*([A-Da-d])[\W_]*")
_BETWEEN: Final = r"(?:\s|[*_`~:(\[{\"'$]|\\\(|\\boxed|\\text\w*|\b(?:is|option|choice|answer)\b){0,200}"
_END: Final = r"(?![\w'\u2019]|-\w)"
_CUE: Final = re.compile(
    rf"(?:(?i:\bfinal\s+answer|\banswer\s+is|\banswer[*_`]*\s*:|\b(?:option|choice)\s+is){_BETWEEN}"
    rf"|\\boxed\s*\{{\s*(?:\\text\w*\s*\{{)?\s*|(?<![*\w])\*\*\(?(?=[A-D][.):]?\)?\*\*))([A-D]){_END}"
)
_FIRST_LINE: Final = re.compile(r"[\s*_`(\[]*([A-D])[*_`\])]*(?:[.):]|\s*$)")
# An `A` before a word is an article, but not behind `option`, and not before a verb of a verdict.
_VERDICT: Final = r"(?:is|was|because|since)\b"
_NO_ARTICLE: Final = rf"(?:(?<!A)|(?<=(?:[Oo]ption|[Cc]hoice) A)|(?![ \t]+(?!{_VERDICT})[a-z]))"
_STANDING: Final = re.compile(rf"(?<![\w'\u2019-])([A-D]){_END}{_NO_ARTICLE}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One row: subject, place in its subject's file, question, four choices, gold letter."""

    id: str
    subject: str
    index: int
    question: str
    choices: tuple[str, ...]
    gold: str


def problems(rows: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """The problems of the set's rows, in their order."""
    for row in rows:
        subject, index = str(row["subject"]), int(row["index"])
        yield Problem(
            f"mmlu/{subject}/{index}",
            subject,
            index,
            str(row["question"]),
            tuple(str(choice) for choice in row["choices"]),
            str(row["answer"]),
        )


def subset(every: Iterable[Problem], *, rows: int) -> list[Problem]:
    """So many problems a subject, chosen by the hash of `subject:index`: the same in any language."""
    by_subject: dict[str, list[Problem]] = {}
    for problem in every:
        by_subject.setdefault(problem.subject, []).append(problem)
    chosen: list[Problem] = []
    for found in by_subject.values():
        first = sorted(found, key=lambda problem: _digest(f"{problem.subject}:{problem.index}"))[:rows]
        chosen += sorted(first, key=lambda problem: problem.index)
    return chosen


def question(problem: Problem) -> Question:
    """How the problem is asked."""
    options = "\n".join(
        f"{letter}. {choice}" for letter, choice in zip(LETTERS, problem.choices, strict=True)
    )
    prompt = f"{problem.question}\n\n{options}\n\nReply with the letter of the right answer only."
    return Question(problem.id, prompt, MAX_TOKENS)


def extract(text: str) -> str | None:
    """The letter that a reply answers with; None where it names none.

    In this order: the whole text, the last cue with a letter, the front of the first line, the last line.
    """
    whole = _ALONE.fullmatch(text)
    if whole:
        return whole.group(1).upper()
    cues = _CUE.findall(text)
    if cues:
        return str(cues[-1])
    lines = text.strip().splitlines() or [""]
    first = _FIRST_LINE.match(lines[0])
    if first:
        return first.group(1)
    standing = _STANDING.findall(lines[-1])
    return str(standing[-1]) if standing else None


def grade(problem: Problem, text: str) -> Grade:
    """Right when the letter is the gold one."""
    found = extract(text)
    if found is None:
        return Grade("unparsed", note="no letter in the reply")
    return Grade("pass" if found == problem.gold else "fail", found)


def subject_mean(results: Iterable[Graded]) -> float:
    """Mean over subjects of the share of right items; 0 when nothing was graded."""
    by_subject: dict[str, list[bool]] = {}
    for result in results:
        if result.grade.right is not None:
            by_subject.setdefault(result.item.split("/")[1], []).append(result.grade.right)
    return fmean(fmean(rights) for rights in by_subject.values()) if by_subject else 0.0


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
