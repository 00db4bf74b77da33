"""Programs found in replies: cases from public reports, their kinds, and any wrapping of a program."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.quality.grading import graded_text
from gates.quality.programs import blocks, build, tree

PROGRAM = "def f(x):\n    return x + 1"
PROMPT = (
    "from typing import List\n\n\ndef helper(a):\n    return a * 2\n\n\n"
    'def f(x: List[int]) -> int:\n    """ Add one. """\n'
)


def fenced(code: str, *, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}\n{fence}"


def source(text: str, *, prompt: str = "") -> str:
    built = build(text, entry="f", prompt=prompt)

    assert "built" == built.state
    return built.source


def test_a_block_keeps_its_import() -> None:
    """C1."""
    code = "from typing import List\n\ndef f(x: List[int]) -> int:\n    return sum(x)"

    assert code == source(f"Here it is:\n{fenced(code)}\nDone.")


@pytest.mark.parametrize("label", ["", "Python", "py", "python3", "PYTHON", "python title=a.py"])
@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_fence_gives_the_same_program(label: str, fence: str, end: str) -> None:
    """C2."""
    text = f"Here:\n\n{fenced(PROGRAM, label=label, fence=fence)}\n".replace("\n", end)

    assert PROGRAM == source(text)


def test_the_last_fence_may_be_left_open() -> None:
    assert PROGRAM == source(f"Here:\n```python\n{PROGRAM}")


def test_a_closing_fence_alone_takes_no_word_of_the_code() -> None:
    """C3."""
    assert "def foo(): return 1" == build("def foo(): return 1\n```", entry="foo").source


def test_a_draft_in_the_thoughts_is_not_collected() -> None:
    """C4."""
    second = "def f(x):\n    return x - int(x)"
    text = f"<think>\ndef f(x): return x  # draft\n{fenced(PROGRAM)}</think>{fenced(second)}"

    assert second == source(graded_text(text))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("def helper(a):\n    return a*2\n\ndef f(x):\n    return helper(x)", id="C7_helper"),
        pytest.param("def f(x):\n  return x+1", id="C7_two_blanks"),
        pytest.param("f = lambda x: x + 1", id="lambda"),
        pytest.param("try:\n    import numpy\nexcept ImportError:\n    def f(x): return x", id="in_a_branch"),
        pytest.param("class A:\n    pass\n\n\nasync def f(x):\n    return x", id="async"),
    ],
)
def test_whole_programs_are_kept_as_they_are(code: str) -> None:
    assert code == source(fenced(code))


def test_a_later_block_that_only_calls_the_function_is_passed_over() -> None:
    assert PROGRAM == source(f"{fenced(PROGRAM)}\nUse it:\n{fenced('print(f(1))')}")


def test_of_two_definitions_the_last_one_counts() -> None:
    assert PROGRAM == source(f"{fenced('def f(x): return x')}\nBetter:\n{fenced(PROGRAM)}")


def test_earlier_blocks_come_along_when_they_are_needed() -> None:
    helper, other, chosen = "import math", "def g(): pass", "def f(x):\n    return math.floor(x)"

    assert f"{helper}\n\n{chosen}" == source("\n".join(map(fenced, (helper, other, chosen))))


def test_imports_and_helpers_of_the_prompt_stand_in_front() -> None:
    found = source(fenced("def f(x: List[int]) -> int:\n    return helper(x)"), prompt=PROMPT)

    assert ["ImportFrom", "FunctionDef", "FunctionDef"] == [type(n).__name__ for n in ast.parse(found).body]
    assert found.endswith("return helper(x)")


@pytest.mark.parametrize("body", ["    return x + 1", "return x + 1", "    y = x\n    return y + 1"])
def test_a_body_alone_goes_behind_the_prompt(body: str) -> None:
    found = source(fenced(body), prompt=PROMPT)
    names: dict[str, object] = {}
    exec(found, names)  # our own text

    assert callable(names["f"])
    assert 2 == names["f"](1)


def test_an_import_from_the_future_comes_first() -> None:
    found = source(fenced("from __future__ import annotations\n\ndef f(x): return x"), prompt=PROMPT)

    assert found.startswith("from __future__ import annotations\n")
    assert tree(found) is not None


@pytest.mark.parametrize(
    ("text", "state"),
    [
        pytest.param("", "no_code", id="empty"),
        pytest.param("I cannot do that.", "no_code", id="prose"),
        pytest.param("None", "no_code", id="prose_that_parses"),
        pytest.param(fenced("def f(x:\n    return"), "syntax", id="broken"),
        pytest.param("def f(x) return 1", "syntax", id="broken_without_fence"),
        pytest.param(fenced("def g(x): return x"), "no_code", id="another_function"),
        pytest.param("<think>" + fenced(PROGRAM), "no_code", id="unclosed_thought"),
        pytest.param(fenced("f = " + "(" * 5000), "no_code", id="deep_brackets"),
        pytest.param(fenced("f = " + "-" * 90_000 + "1"), "no_code", id="deep_operators"),
        pytest.param(fenced("x = 1\n" * 50_000), "no_code", id="endless"),
    ],
)
def test_a_text_without_the_program_says_so(text: str, state: str) -> None:
    assert state == build(graded_text(text), entry="f", prompt=PROMPT).state


def test_a_block_inside_a_list_loses_its_indent() -> None:
    assert PROGRAM == source("1. So:\n   ```python\n   def f(x):\n       return x + 1\n   ```")


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_prose_around_a_fence_does_not_change_the_program(before: str, after: str) -> None:
    before, after = (part.replace("`", "").replace("~", "") for part in (before, after))

    assert PROGRAM == source(f"{before}\n{fenced(PROGRAM)}\n{after}")


@settings(deadline=None)
@given(st.text(alphabet="`~ \n\rdef(x):=1python", max_size=80))
def test_no_text_breaks_the_search(text: str) -> None:
    assert all(block.strip() for block in blocks(text))
    assert build(text, entry="f", prompt=PROMPT).state in {"built", "syntax", "no_code"}
