"""MBPP: a function is described in one sentence and three asserts; the answer is a program that is run.

Owns the prompt, the choice of rows (the authors' test split, whole or hand-checked), and the tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.errors import CheckError
from gates.quality.asking import Question
from gates.quality.grading import Grade
from gates.quality.programs import build, defined, tree
from gates.quality.sandbox import Limits, Program

PROMPT_VERSION: Final = "1"
GRADER_VERSION: Final = "2"
FILE: Final = "mbpp/mbpp.jsonl"
SANITIZED_FILE: Final = "mbpp/sanitized-mbpp.json"
TEST_IDS: Final = range(11, 511)
MAX_TOKENS: Final = 2048
LIMITS: Final = Limits(seconds=15.0)
SLOW_LIMITS: Final = Limits(seconds=90.0)
SLOW: Final = frozenset({"amicable_numbers_sum"})  # its reference alone takes 10 to 15 s on a busy core


@dataclass(frozen=True, slots=True)
class Problem:
    """One row: the sentence, the asserts, what stands in front of them, and the reference solution."""

    id: str
    text: str
    entry: str
    asserts: tuple[str, ...]
    setup: str
    solution: str


def problems(rows: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """The problems of the test split, in their order; takes rows of the whole and of the sanitized file."""
    for row in rows:
        if row["task_id"] not in TEST_IDS:
            continue
        sanitized = "prompt" in row
        name = f"{'mbpp_sanitized' if sanitized else 'mbpp'}/{row['task_id']}"
        solution = str(row["code"]).replace("\r\n", "\n")
        asserts = tuple(str(line) for line in row["test_list"])
        setup = "\n".join(row["test_imports"]) if sanitized else str(row["test_setup_code"])
        text = str(row["prompt" if sanitized else "text"])
        yield Problem(
            name, text, _entry(name, asserts, solution), asserts, setup.replace("\r\n", "\n"), solution
        )


def question(problem: Problem) -> Question:
    """How the problem is asked: all asserts are shown, for only they tell the function's name."""
    tests = "\n".join((problem.setup, *problem.asserts)).strip()
    prompt = (
        f"{problem.text}\n\nGive one Python code block with the whole program. It must pass these tests:\n\n"
        f"```python\n{tests}\n```"
    )
    return Question(problem.id, prompt, MAX_TOKENS)


def program(problem: Problem, text: str) -> Program | Grade:
    """The program of a reply with the problem's tests; a Grade where the text holds none."""
    built = build(text, entry=problem.entry)
    if built.state != "built":
        return Grade(built.state, note=f"no program that defines {problem.entry}")
    tests = "\n".join((problem.setup, *problem.asserts))
    return Program(built.source, tests, problem.entry, SLOW_LIMITS if problem.entry in SLOW else LIMITS)


def _entry(name: str, asserts: tuple[str, ...], solution: str) -> str:
    """The function that the asserts call: the first name called in them that the reference defines."""
    module, tests = tree(solution), tree("\n".join(asserts))
    known = defined(module) if module else frozenset()
    called = [
        (node.lineno, node.col_offset, node.func.id)
        for node in ast.walk(tests or ast.Module([], []))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known
    ]
    if not called:
        raise CheckError(f"{name}: its tests call no function of its reference solution")
    return min(called)[2]
