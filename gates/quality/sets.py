"""The list of question sets, each with its file, its versions, and its items in one shape for all.

Knows the modules of the sets and the store; asks nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gates.errors import UsageError
from gates.quality import gsm8k, humaneval, ifeval, mbpp, mmlu
from gates.quality.asking import Question
from gates.quality.data import Store
from gates.quality.grading import Grade
from gates.quality.sandbox import Program

Rows = Iterable[Mapping[str, Any]]
Grader = Callable[[str], Grade | Program]  # of a graded text; a Program has still to be run


@dataclass(frozen=True, slots=True)
class Item:
    """One item of any set: how it is asked and graded, which items share its context, kind, known faults."""

    question: Question
    grade: Grader
    cluster: str
    category: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """One set: its file, the versions that its results depend on, and how rows become items."""

    title: str
    file: str
    rows: int
    prompt_version: str
    grader_version: str
    load: Callable[[Rows], Iterator[Item]]


def items(name: str, store: Store) -> list[Item]:
    """The items of a set in their order; UsageError for an unknown set, CheckError without its data."""
    found = find(name)
    return list(found.load(store.rows(found.file)))


def versions(name: str, store: Store) -> dict[str, str]:
    """What two runs of a set must have in common to be compared."""
    found = find(name)
    return {
        f"{name} prompt": found.prompt_version,
        f"{name} grader": found.grader_version,
        f"{name} data": store.digests((found.file,))[found.file],
    }


def find(name: str) -> QuestionSet:
    """The set of this name; UsageError names the known ones."""
    if name not in SETS:
        raise UsageError(f"there is no question set '{name}'; known are {', '.join(SETS)}")
    return SETS[name]


def fault_of(item: str) -> str:
    """What is known to be wrong with the item of this id; empty for a sound one."""
    name, _, rest = item.partition("/")
    if name == "ifeval" and rest.isdigit():
        return ifeval.KNOWN_FAULTS.get(int(rest), "")
    return gsm8k.FAULT if item in gsm8k.DOUBTFUL else ""


def _gsm8k(rows: Rows) -> Iterator[Item]:
    for problem in gsm8k.problems(iter(rows)):
        fault = fault_of(problem.id)
        yield Item(gsm8k.question(problem), partial(gsm8k.grade, problem), problem.id, "gsm8k", fault)


def _mmlu(rows: Rows, *, per_subject: int | None = None) -> Iterator[Item]:
    problems = mmlu.problems(rows)
    for problem in problems if per_subject is None else mmlu.subset(problems, rows=per_subject):
        grade = partial(mmlu.grade, problem)
        yield Item(mmlu.question(problem), grade, problem.subject, problem.subject)


def _humaneval(rows: Rows) -> Iterator[Item]:
    for problem in humaneval.problems(rows):
        yield Item(humaneval.question(problem), partial(humaneval.program, problem), problem.id, "humaneval")


def _mbpp(rows: Rows) -> Iterator[Item]:
    for problem in mbpp.problems(rows):
        yield Item(mbpp.question(problem), partial(mbpp.program, problem), problem.id, "mbpp")


def _ifeval(rows: Rows) -> Iterator[Item]:
    for problem in ifeval.problems(rows):
        kind = problem.instructions[0].kind.partition(":")[0]
        grade = partial(ifeval.grade, problem)
        yield Item(ifeval.question(problem), grade, problem.id, kind, problem.fault)


def _mmlu_set(title: str, rows: int, per_subject: int | None = None) -> QuestionSet:
    load = partial(_mmlu, per_subject=per_subject)
    return QuestionSet(title, mmlu.FILE, rows, mmlu.PROMPT_VERSION, mmlu.GRADER_VERSION, load)


def _humaneval_set(title: str, file: str) -> QuestionSet:
    return QuestionSet(title, file, 164, humaneval.PROMPT_VERSION, humaneval.GRADER_VERSION, _humaneval)


def _mbpp_set(title: str, file: str, rows: int) -> QuestionSet:
    return QuestionSet(title, file, rows, mbpp.PROMPT_VERSION, mbpp.GRADER_VERSION, _mbpp)


SETS: Final[Mapping[str, QuestionSet]] = {
    "gsm8k": QuestionSet("GSM8K", gsm8k.FILE, 1319, gsm8k.PROMPT_VERSION, gsm8k.GRADER_VERSION, _gsm8k),
    "mmlu": _mmlu_set("MMLU", 14_042),
    "mmlu_1140": _mmlu_set("MMLU, 20 rows a subject", 1140, 20),
    "mmlu_570": _mmlu_set("MMLU, 10 rows a subject", 570, 10),
    "humaneval": _humaneval_set("HumanEval", humaneval.FILE),
    "humaneval_plus": _humaneval_set("HumanEval+", humaneval.PLUS_FILE),
    "mbpp": _mbpp_set("MBPP", mbpp.FILE, 500),
    "mbpp_sanitized": _mbpp_set("MBPP, sanitized", mbpp.SANITIZED_FILE, 257),
    "ifeval": QuestionSet(
        "IFEval", ifeval.FILE, 541, ifeval.PROMPT_VERSION, ifeval.grader_version(), _ifeval
    ),
}
