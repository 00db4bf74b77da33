"""The real sets, where SPARKGATE_DATA names them: as many rows as published, and gold answers that pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gates.quality import gsm8k, humaneval, ifeval, mbpp, mmlu
from gates.quality.grading import Grade
from gates.quality.sandbox import Program, Sandbox
from gates.tests.quality import mutants
from gates.tests.quality.real import needs_sets, store

pytestmark = needs_sets


def test_every_gold_solution_of_gsm8k_passes() -> None:
    rows = list(store().rows(gsm8k.FILE))
    problems = list(gsm8k.problems(iter(rows)))

    assert 1319 == len(problems)
    for problem, row in zip(problems, rows, strict=True):
        assert "pass" == gsm8k.grade(problem, row["answer"]).state
        assert "pass" == gsm8k.grade(problem, row["answer"].replace("####", "The answer is")).state


def test_the_subsets_of_mmlu_are_the_published_ones() -> None:
    problems = list(mmlu.problems(store().rows(mmlu.FILE)))
    published = json.loads((store().folder / "mmlu" / "subsets.json").read_text(encoding="utf-8"))["subjects"]

    assert 14042 == len(problems)
    for rows, total in ((10, 570), (20, 1140)):
        chosen = mmlu.subset(problems, rows=rows)
        found: dict[str, list[int]] = {}
        for problem in chosen:
            found.setdefault(problem.subject, []).append(problem.index)
        assert total == len(chosen)
        assert {name: indexes[f"first{rows}"] for name, indexes in published.items()} == found


def passes(found: Program | Grade, sandbox: Sandbox) -> str:
    return found.state if isinstance(found, Grade) else sandbox.run(found).state


@pytest.mark.parametrize("path", [humaneval.FILE, humaneval.PLUS_FILE])
def test_every_problem_of_humaneval_has_a_program_and_the_gold_of_a_sample_passes(
    path: str, sandbox: Sandbox
) -> None:
    problems = list(humaneval.problems(store().rows(path)))
    programs = [humaneval.program(found, f"```\n{found.prompt}{found.solution}\n```") for found in problems]

    assert 164 == len(problems)
    assert all(isinstance(found, Program) for found in programs)
    for found in programs[5::40]:
        assert "pass" == passes(found, sandbox)


@pytest.mark.parametrize(("path", "rows"), [(mbpp.FILE, 500), (mbpp.SANITIZED_FILE, 257)])
def test_every_problem_of_mbpp_has_a_program_and_the_gold_of_a_sample_passes(
    path: str, rows: int, sandbox: Sandbox
) -> None:
    problems = list(mbpp.problems(store().rows(path)))
    programs = [mbpp.program(found, f"```python\r\n{found.solution}\r\n```") for found in problems]

    assert rows == len(problems)
    assert all(isinstance(found, Program) for found in programs)
    for found in programs[7::60]:
        assert "pass" == passes(found, sandbox)


def test_every_instruction_of_ifeval_is_known_and_has_its_arguments() -> None:
    problems = list(ifeval.problems(store().rows(ifeval.FILE)))
    results = [ifeval.follow(problem, problem.prompt) for problem in problems]
    sizes = [len(problem.instructions) for problem in problems]
    repeated = [
        problem
        for problem in problems
        if len({given.kind for given in problem.instructions}) < len(problem.instructions)
    ]

    assert (541, 834) == (len(problems), sum(len(result.strict) for result in results))
    assert [305, 179, 57] == [sizes.count(size) for size in (1, 2, 3)]
    assert 17 == len(repeated)
    assert set(ifeval.KNOWN_FAULTS) <= {problem.key for problem in problems}


def test_programs_with_one_token_changed_are_noticed(sandbox: Sandbox) -> None:
    """95 of 100 in a larger sample; what survives is as right as before, or beyond the set's inputs."""
    problems = {
        found.id: found
        for found in humaneval.problems(store().rows(humaneval.PLUS_FILE))
        if found.id not in humaneval.SLOW
    }
    sources = {name: found.prompt + found.solution for name, found in problems.items()}
    alive = []
    for name, mutant in mutants.sample(sources, count=30, seed=1):
        program = humaneval.program(problems[name], f"```\n{mutant}\n```")
        assert isinstance(program, Program)
        if "pass" == sandbox.run(replace(program, limits=replace(program.limits, seconds=5.0))).state:
            alive.append(mutant)

    assert len(alive) <= 4
