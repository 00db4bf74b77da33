"""IFEval: prompts with instructions that a program can check; no answer, but whether each was followed.

Owns the four figures (strict and loose, each by prompt and by instruction) and the list of rows whose data is
known to be faulty; how one instruction is checked is in `checkers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from gates.errors import CheckError
from gates.quality import checkers, language
from gates.quality.asking import Question
from gates.quality.grading import Grade

PROMPT_VERSION: Final = "1"
GRADER_VERSION: Final = "3"
FILE: Final = "ifeval/input_data.jsonl"
MAX_TOKENS: Final = 2048

# Rows kept as they are, graded by their arguments, and named in the report.
KNOWN_FAULTS: Final[Mapping[int, str]] = {
    1122: "asks for the letter '#', which the reference replaces by a random one",
    1129: "asks for the letter '!', which the reference replaces by a random one",
    2078: "contradicts itself",
    337: "asks for 400 words in the prompt and for 336 in the arguments",
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a prompt: its kind and its own arguments."""

    kind: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """One row; instructions are counted by place, for a kind may stand twice in a prompt."""

    id: str
    key: int
    prompt: str
    instructions: tuple[Instruction, ...]

    @property
    def fault(self) -> str:
        """What is known to be wrong with the row; empty for a sound one."""
        return KNOWN_FAULTS.get(self.key, "")


@dataclass(frozen=True, slots=True)
class Followed:
    """Which instructions of a prompt were followed, in their order, strictly and loosely."""

    strict: tuple[bool, ...]
    loose: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """The four figures of a run; 0 when nothing was graded."""

    prompt_strict: float
    prompt_loose: float
    instruction_strict: float
    instruction_loose: float


def grader_version() -> str:
    """The version of the grader with those of the libraries that decide with it."""
    return f"{GRADER_VERSION} {language.versions()}"


def problems(rows: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """The problems of the set's rows, in their order; CheckError where arguments are missing."""
    for row in rows:
        kinds, arguments = row["instruction_id_list"], row["kwargs"]
        if len(kinds) != len(arguments):
            raise CheckError(f"ifeval {row['key']}: {len(kinds)} instructions, {len(arguments)} arguments")
        instructions = tuple(map(Instruction, kinds, arguments))
        yield Problem(f"ifeval/{row['key']}", int(row["key"]), str(row["prompt"]), instructions)


def question(problem: Problem) -> Question:
    """How the problem is asked: its prompt, word for word."""
    return Question(problem.id, problem.prompt, MAX_TOKENS)


def follow(problem: Problem, text: str) -> Followed:
    """Which instructions a reply follows; blank lines that thoughts left around it are not part of it."""
    texts = variants(text.strip("\n"))
    by_instruction = [
        [checkers.follows(instruction.kind, instruction.arguments, variant) for variant in texts]
        for instruction in problem.instructions
    ]
    return Followed(tuple(held[0] for held in by_instruction), tuple(any(held) for held in by_instruction))


def variants(text: str) -> Sequence[str]:
    """The text, and it without its first, its last, both of these lines, and each without asterisks."""
    lines = text.split("\n")
    cut = [text] + ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return [*cut, *(part.replace("*", "") for part in cut)]


def grade(problem: Problem, text: str) -> Grade:
    """Right when every instruction was followed strictly; the note names those that were not.

    What is extracted has a digit an instruction, 1 where it was followed: strictly, a blank, loosely.
    """
    found = follow(problem, text)
    broken = [
        instruction.kind
        for instruction, good in zip(problem.instructions, found.strict, strict=True)
        if not good
    ]
    note = f"not followed: {', '.join(broken)}" if broken else ""
    extracted = " ".join("".join(str(int(good)) for good in held) for held in (found.strict, found.loose))
    return Grade("fail" if broken else "pass", extracted, note)


def followed(extracted: str) -> Followed:
    """What `grade` extracted, read back; CheckError for another text."""
    parts = re.fullmatch(r"([01]+) ([01]+)", extracted)
    if parts is None:
        raise CheckError(f"'{extracted}' does not say which instructions were followed")
    strict, loose = (tuple(digit == "1" for digit in part) for part in parts.groups())
    return Followed(strict, loose)


def figures(results: Sequence[Followed]) -> Figures:
    """The four figures of these prompts."""
    if not results:
        return Figures(0.0, 0.0, 0.0, 0.0)
    strict, loose = [result.strict for result in results], [result.loose for result in results]
    return Figures(
        fmean(map(all, strict)),
        fmean(map(all, loose)),
        fmean(good for held in strict for good in held),
        fmean(good for held in loose for good in held),
    )
