"""HumanEval and HumanEval+: a function is to be completed; the answer is a program that is run.

Owns the prompt, which part of a reply is the program, and the tests: the set's own, and for HumanEval+ a
comparison with the reference solution on many more inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.quality.asking import Question
from gates.quality.grading import Grade
from gates.quality.programs import build
from gates.quality.sandbox import Limits, Program

PROMPT_VERSION: Final = "1"
GRADER_VERSION: Final = "2"
FILE: Final = "humaneval/HumanEval.jsonl"
PLUS_FILE: Final = "humaneval_plus/HumanEvalPlus.jsonl.gz"
MAX_TOKENS: Final = 2048
LIMITS: Final = Limits(seconds=15.0)
PLUS_LIMITS: Final = Limits(seconds=60.0, memory_bytes=4 << 30)
SLOW_LIMITS: Final = Limits(seconds=240.0, memory_bytes=4 << 30)
# Here the reference alone takes 4 to 20 s on one core for the inputs of HumanEval+.
SLOW: Final = frozenset(f"humaneval_plus/{number}" for number in (15, 36, 59, 83, 94, 130, 139))
ANY_ROOT: Final = "find_zero"  # has many right answers: any root within the tolerance
ROOT_TOLERANCE: Final = 1e-4

# Compares results as the set's authors do: equal, or floats within a tolerance.
_COMPARE: Final = """
import copy as _copy, math as _math

def _same(found, expected, tolerance):
    if type(found) is type(expected) and isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(lambda a, b: _same(a, b, tolerance), found, expected))
    if isinstance(expected, float) and isinstance(found, (int, float)):
        if _math.isnan(expected):
            return _math.isnan(found)
        return found == expected or abs(found - expected) <= (tolerance or 1e-6) * max(1.0, abs(expected))
    return found == expected
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """One row; `more` are the tests of HumanEval+, empty in HumanEval."""

    id: str
    prompt: str
    entry: str
    solution: str
    test: str
    more: str = ""


def problems(rows: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """The problems of the set's rows, in their order; rows of HumanEval+ bring their further inputs."""
    for row in rows:
        plus = "plus_input" in row
        yield Problem(
            f"{'humaneval_plus' if plus else 'humaneval'}/{str(row['task_id']).rpartition('/')[2]}",
            str(row["prompt"]),
            str(row["entry_point"]),
            str(row["canonical_solution"]),
            str(row["test"]),
            _more(row) if plus else "",
        )


def question(problem: Problem) -> Question:
    """How the problem is asked."""
    prompt = (
        "Complete this function. Give one Python code block with the whole function and all its imports.\n\n"
        f"```python\n{problem.prompt.rstrip()}\n```"
    )
    return Question(problem.id, prompt, MAX_TOKENS)


def program(problem: Problem, text: str) -> Program | Grade:
    """The program of a reply with the problem's tests; a Grade where the text holds none."""
    built = build(text, entry=problem.entry, prompt=problem.prompt)
    if built.state != "built":
        return Grade(built.state, note=f"no program that defines {problem.entry}")
    tests = f"{problem.test}\n\ncheck({problem.entry})\n{problem.more}"
    limits = SLOW_LIMITS if problem.id in SLOW else PLUS_LIMITS if problem.more else LIMITS
    return Program(built.source, tests, problem.entry, limits)


def _more(row: Mapping[str, Any]) -> str:
    """Tests that compare with the reference solution on the inputs of both sets."""
    entry = row["entry_point"]
    reference = f"{row['prompt']}{row['canonical_solution']}"
    check = "_same(_found, _names[_entry](*_copy.deepcopy(_given)), _tolerance)"
    if entry == ANY_ROOT:
        check = f"abs(_names['poly'](_given[0], _found)) <= {ROOT_TOLERANCE}"
    return (
        f"{_COMPARE}\n_entry, _tolerance, _names = {entry!r}, {float(row['atol'])!r}, {{}}\n"
        f"exec({reference!r}, _names)\n"
        f"for _given in {row['base_input']} + {row['plus_input']}:\n"
        f"    _found = {entry}(*_copy.deepcopy(_given))\n"
        f"    assert {check}, f'{{_given!r:.100}} gave {{_found!r:.100}}'\n"
    )
