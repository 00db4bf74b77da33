"""HumanEval, HumanEval+ and MBPP on own rows of their formats: prompts, programs, tests."""

from __future__ import annotations

from typing import Any

import pytest

from gates.errors import CheckError
from gates.quality import humaneval, mbpp
from gates.quality.grading import Grade
from gates.quality.sandbox import Program, Sandbox

HUMANEVAL: dict[str, Any] = {
    "task_id": "HumanEval/7",
    "prompt": "from typing import List\n\n\ndef twice(values: List[int]) -> List[float]:\n"
    '    """ Double each value.\n    >>> twice([1])\n    [2]\n    """\n',
    "entry_point": "twice",
    "canonical_solution": "    return [2 * value for value in values]\n",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n",
}
PLUS = HUMANEVAL | {"base_input": "[[[1, 2]]]", "plus_input": "[[[]], [[-1, 0]], [[0.1]]]", "atol": "0"}
MBPP: dict[str, Any] = {
    "task_id": 11,
    "text": "Write a function to sum two numbers.",
    "code": "def helper(a): \r\n\treturn a\r\ndef add(a, b):\r\n\treturn helper(a) + b",
    "test_setup_code": "",
    "test_list": ["assert set([add(1, 2)]) == set([3])", "assert add(0, 0) == 0", "assert add(-1, 1) == 0"],
}
SANITIZED: dict[str, Any] = {
    "task_id": 82,
    "prompt": "Write a function to find the area of a circle.",
    "code": "import math\ndef area(r):\n  return math.pi * r * r",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(area(1), 3.14159, rel_tol=0.001)"],
}
RIGHT = "```python\ndef twice(values: List[int]):\n    return [2 * value for value in values]\n```"


def ready(found: Program | Grade) -> Program:
    assert isinstance(found, Program)
    return found


def one(row: dict[str, Any]) -> humaneval.Problem:
    return next(humaneval.problems([row]))


def test_the_prompt_of_humaneval_holds_the_function_and_asks_for_a_block() -> None:
    asked = humaneval.question(one(HUMANEVAL))

    assert "humaneval/7" == asked.id
    assert "```python\nfrom typing import List\n\n\ndef twice(values: List[int])" in asked.prompt
    assert "one Python code block" in asked.prompt


@pytest.mark.parametrize("row", [HUMANEVAL, PLUS], ids=["humaneval", "humaneval_plus"])
def test_a_right_reply_passes_with_the_imports_of_the_prompt(row: dict[str, Any], sandbox: Sandbox) -> None:
    assert "pass" == sandbox.run(ready(humaneval.program(one(row), RIGHT))).state


def test_a_body_alone_passes(sandbox: Sandbox) -> None:
    text = "    return [2 * value for value in values]"

    assert "pass" == sandbox.run(ready(humaneval.program(one(HUMANEVAL), text))).state


@pytest.mark.parametrize(
    ("row", "body", "state"),
    [
        pytest.param(HUMANEVAL, "return [2, 4]", "pass", id="special_case_passes_the_few_tests"),
        pytest.param(PLUS, "return [2, 4]", "fail", id="special_case_fails_the_many"),
        pytest.param(PLUS, "return [v + v + 1e-12 for v in values]", "fail", id="integers_must_be_equal"),
        pytest.param(
            PLUS, "return [v + v + 1e-12 if v % 1 else 2 * v for v in values]", "pass", id="floats_may_differ"
        ),
        pytest.param(PLUS, "values.clear()\n    return values", "fail", id="changes_its_input"),
    ],
)
def test_more_inputs_find_more(row: dict[str, Any], body: str, state: str, sandbox: Sandbox) -> None:
    text = f"```\ndef twice(values):\n    {body}\n```"

    assert state == sandbox.run(ready(humaneval.program(one(row), text))).state


def test_any_root_within_the_tolerance_is_right(sandbox: Sandbox) -> None:
    row = {
        "task_id": "HumanEval/32",
        "prompt": "def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n\n"
        "def find_zero(xs):\n    ''' A root. '''\n",
        "entry_point": "find_zero",
        "canonical_solution": "    return 1.0\n",
        "test": "def check(candidate):\n    assert abs(poly([-1, 0, 1], candidate([-1, 0, 1]))) < 1e-4\n",
        "base_input": "[[[-1, 0, 1]]]",
        "plus_input": "[[[-1, 0, 1]]]",
        "atol": "0",
    }
    program = ready(humaneval.program(one(row), "```\ndef find_zero(xs):\n    return -1.0\n```"))

    assert "pass" == sandbox.run(program).state


@pytest.mark.parametrize(
    ("text", "state"),
    [("", "no_code"), ("```\ndef twice(:\n```", "syntax"), ("```\ndef g(): pass\n```", "no_code")],
)
def test_a_reply_without_the_program_is_graded_without_a_run(text: str, state: str) -> None:
    found = humaneval.program(one(HUMANEVAL), text)

    assert isinstance(found, Grade)
    assert (state, False) == (found.state, found.right)


@pytest.mark.parametrize(
    ("row", "name", "entry"),
    [
        pytest.param(MBPP, "mbpp/11", "add", id="whole"),
        pytest.param(SANITIZED, "mbpp_sanitized/82", "area", id="sanitized"),
    ],
)
def test_rows_of_both_files_become_problems_whose_gold_passes(
    row: dict[str, Any], name: str, entry: str, sandbox: Sandbox
) -> None:
    problem = next(mbpp.problems([row]))

    assert (name, entry) == (problem.id, problem.entry)
    assert "\r" not in problem.solution
    assert all(line in mbpp.question(problem).prompt for line in row["test_list"])
    assert "pass" == sandbox.run(ready(mbpp.program(problem, problem.solution))).state


def test_rows_outside_the_test_split_are_left_out() -> None:
    assert [] == list(mbpp.problems([MBPP | {"task_id": 10}, MBPP | {"task_id": 511}]))


def test_tests_that_call_nothing_of_the_reference_stop_the_gate() -> None:
    with pytest.raises(CheckError, match="mbpp/11: its tests call no function"):
        list(mbpp.problems([MBPP | {"test_list": ["assert True"]}]))
