"""Runs many programs: the judge proves itself first, all cores work, a timeout is tried twice.

Knows the sandbox and grades; no set.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from gates.errors import InfrastructureError
from gates.harness.probe import cpus
from gates.quality.grading import Grade
from gates.quality.sandbox import Limits, Program, Result, Sandbox

_TEST: Final = "assert f(1) == 2"
_SHORT: Final = Limits(seconds=1.0)

# What a judge must tell apart before it is believed: samples and whether they pass.
SAMPLES: Final = {
    "right": (Program("def f(x):\n    return x + 1", _TEST, "f"), True),
    "wrong": (Program("def f(x):\n    return x", _TEST, "f"), False),
    "hanging": (Program("def f(x):\n    while True: pass", _TEST, "f", _SHORT), False),
    "exiting": (Program("import os\ndef f(x):\n    os._exit(0)", _TEST, "f"), False),
    "printing": (Program("print('pass')\ndef f(x):\n    print('pass')", _TEST, "f"), False),
}


def prove(sandbox: Sandbox) -> None:
    """Raise InfrastructureError unless the right sample passes and none of the others does."""
    for name, (program, passes) in SAMPLES.items():
        result = sandbox.run(program)
        if (result.state == "pass") != passes:
            raise InfrastructureError(
                f"the judge of programs cannot be trusted: a {name} program ended as '{result.state}'"
                f" ({result.note or 'no note'}); no program of the model was run"
            )


def run_all(
    programs: Mapping[str, Program], sandbox: Sandbox, *, workers: int | None = None
) -> dict[str, Grade]:
    """Run every program, on all cores that are ours; what ran out of time runs once more, alone."""
    prove(sandbox)
    with ThreadPoolExecutor(workers or cpus()) as pool:
        results = dict(zip(programs, pool.map(sandbox.run, programs.values()), strict=True))
    for name, result in results.items():
        if result.state == "timeout":
            results[name] = sandbox.run(programs[name])
    return {name: grade_of(programs[name], result) for name, result in results.items()}


def grade_of(program: Program, result: Result) -> Grade:
    """The grade of a program that was run."""
    return Grade(result.state, program.source, result.note)
