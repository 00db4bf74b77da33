"""The real sets, where SPARKGATE_DATA names them: as many rows as published, and gold answers that pass."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gates.quality import execution, gsm8k, humaneval, ifeval, mbpp, mmlu
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


def survivors(count: int, *, seed: int, sandbox: Sandbox) -> list[str]:
    """Those of so many reference solutions of HumanEval+ with one token changed whose tests do not notice."""
    problems = {
        found.id: found
        for found in humaneval.problems(store().rows(humaneval.PLUS_FILE))
        if found.id not in humaneval.SLOW
    }
    sources = {name: found.prompt + found.solution for name, found in problems.items()}
    programs: dict[str, Program] = {}
    for name, mutant in mutants.sample(sources, count=count, seed=seed):
        program = humaneval.program(problems[name], f"```\n{mutant}\n```")
        assert isinstance(program, Program)
        changed = "\n".join(
            difflib.unified_diff(sources[name].split("\n"), mutant.split("\n"), lineterm="", n=0)
        )
        programs[f"{name}\n{changed}"] = replace(program, limits=replace(program.limits, seconds=5.0))
    return [name for name, grade in execution.run_all(programs, sandbox).items() if grade.right]


def test_programs_with_one_token_changed_are_noticed(sandbox: Sandbox) -> None:
    """95 of 100 in a larger sample; what survives is as right as before, or beyond the set's inputs."""
    assert len(survivors(30, seed=1, sandbox=sandbox)) <= 4


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_of_many_programs_with_one_token_changed_nearly_all_are_noticed(sandbox: Sandbox) -> None:
    alive = survivors(400, seed=2, sandbox=sandbox)
    print(f"\n{len(alive)} of 400 survive:", *alive, sep="\n")

    assert len(alive) <= 0.05 * 400


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", [humaneval.FILE, humaneval.PLUS_FILE])
def test_every_reference_solution_of_humaneval_passes(path: str, sandbox: Sandbox) -> None:
    problems = humaneval.problems(store().rows(path))
    found = {p.id: humaneval.program(p, f"```\n{p.prompt}{p.solution}\n```") for p in problems}

    assert {} == failing(found, sandbox)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", [mbpp.FILE, mbpp.SANITIZED_FILE])
def test_every_reference_solution_of_mbpp_passes(path: str, sandbox: Sandbox) -> None:
    problems = mbpp.problems(store().rows(path))
    found = {p.id: mbpp.program(p, f"```python\n{p.solution}\n```") for p in problems}

    assert {} == failing(found, sandbox)


def failing(found: Mapping[str, Program | Grade], sandbox: Sandbox) -> dict[str, Grade]:
    """The grades of those that do not pass, also of those that are no program."""
    none = {name: grade for name, grade in found.items() if isinstance(grade, Grade)}
    programs = {name: program for name, program in found.items() if isinstance(program, Program)}
    return none | {name: g for name, g in execution.run_all(programs, sandbox).items() if not g.right}
