"""One-line Python functions from a docstring or from three asserts, asked and graded like HumanEval and MBPP.

Each function is a family with a constant: the name, the description and the expression carry it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from gates.harness.seeded import number, pick, several, words
from gates.quality import humaneval, mbpp
from gates.quality.mini.item import Item

Form = Literal["docstring", "asserts"]
Kind = Literal["number", "word", "list"]


@dataclass(frozen=True, slots=True)
class Family:
    """A function of one argument `x` and a constant `n`, as name, words, expression and meaning."""

    name: str
    does: str
    expression: str
    kind: Kind
    meaning: Callable[[Any, int], Any]


FAMILIES: Final = (
    Family("add_{n}", "adds {n} to a number", "{x} + {n}", "number", lambda x, n: x + n),
    Family("subtract_{n}", "subtracts {n} from a number", "{x} - {n}", "number", lambda x, n: x - n),
    Family("times_{n}", "multiplies a number by {n}", "{x} * {n}", "number", lambda x, n: x * n),
    Family("divide_by_{n}", "divides a number by {n}, rounded down", "{x} // {n}", "number",
           lambda x, n: x // n),
    Family("rest_by_{n}", "gives the rest of a number divided by {n}", "{x} % {n}", "number",
           lambda x, n: x % n),
    Family("above_{n}", "tells whether a number is greater than {n}", "{x} > {n}", "number",
           lambda x, n: x > n),
    Family("below_{n}", "tells whether a number is less than {n}", "{x} < {n}", "number", lambda x, n: x < n),
    Family("equals_{n}", "tells whether a number is {n}", "{x} == {n}", "number", lambda x, n: x == n),
    Family("fits_{n}", "tells whether a number can be divided by {n}", "{x} % {n} == 0", "number",
           lambda x, n: x % n == 0),
    Family("at_most_{n}", "limits a number to at most {n}", "min({x}, {n})", "number", min),
    Family("at_least_{n}", "raises a number to at least {n}", "max({x}, {n})", "number", max),
    Family("distance_to_{n}", "gives the distance of a number to {n}", "abs({x} - {n})", "number",
           lambda x, n: abs(x - n)),
    Family("repeat_{n}", "repeats a text {n} times", "{x} * {n}", "word", lambda x, n: x * n),
    Family("first_{n}", "gives the first {n} letters of a text", "{x}[:{n}]", "word", lambda x, n: x[:n]),
    Family("last_{n}", "gives the last {n} letters of a text", "{x}[-{n}:]", "word", lambda x, n: x[-n:]),
    Family("skip_{n}", "drops the first {n} letters of a text", "{x}[{n}:]", "word", lambda x, n: x[n:]),
    Family("longer_than_{n}", "tells whether a text is longer than {n} letters", "len({x}) > {n}", "word",
           lambda x, n: len(x) > n),
    Family("upper_first_{n}", "gives the first {n} letters in upper case", "{x}[:{n}].upper()", "word",
           lambda x, n: x[:n].upper()),
    Family("take_{n}", "gives the first {n} values of a list", "{x}[:{n}]", "list", lambda x, n: x[:n]),
    Family("drop_{n}", "drops the first {n} values of a list", "{x}[{n}:]", "list", lambda x, n: x[n:]),
    Family("sum_plus_{n}", "gives the sum of a list plus {n}", "sum({x}) + {n}", "list",
           lambda x, n: sum(x) + n),
    Family("count_of_{n}", "counts how often {n} is in a list", "{x}.count({n})", "list",
           lambda x, n: x.count(n)),
    Family("has_{n}", "tells whether {n} is in a list", "{n} in {x}", "list", lambda x, n: n in x),
    Family("add_to_all_{n}", "adds {n} to each value of a list", "[v + {n} for v in {x}]", "list",
           lambda x, n: [v + n for v in x]),
)  # fmt: skip
ARGUMENTS: Final[dict[Kind, tuple[str, ...]]] = {
    "number": ("x", "n", "number", "value"),
    "word": ("text", "word", "s", "name"),
    "list": ("values", "items", "numbers", "data"),
}
WORDS: Final = words("apple garden window river morning letter summer bridge carpet dinner forest")


def draw_item(draw: random.Random, *, form: Form) -> Item:
    """Any item of a form."""
    family = pick(draw, FAMILIES)
    constant = number(draw, 2, 6 if family.kind == "word" or family.name == "take_{n}" else 60)
    return told(draw, form, form, family, constant, arguments=ARGUMENTS[family.kind])


def told(
    draw: random.Random,
    kind: str,
    form: Form,
    family: Family,
    constant: int,
    *,
    arguments: Sequence[str],
    further: Sequence[Any] = (),
) -> Item:
    """The item of a family and its constant; its argument is one of these, in asserts the first.

    `further` inputs are tried too, where the prompt does not show what is tried.
    """
    argument = pick(draw, arguments) if form == "docstring" else arguments[0]  # asserts do not tell it
    name, does = family.name.format(n=constant), family.does.format(n=constant)
    head = f"def {name}({argument}):"
    source = f"{head}\n    return {family.expression.format(n=constant, x=argument)}"
    inputs = [*_inputs(draw, family.kind, constant), *(further if form == "docstring" else ())]
    asserts = tuple(f"assert {name}({given!r}) == {family.meaning(given, constant)!r}" for given in inputs)
    prompt, row = _asked(form, name, does, head, source, asserts)
    fenced = f"```python\n{source}\n```"
    return Item(kind, prompt, row, fenced, f"The function {does}.", fenced)


def _asked(
    form: Form, name: str, does: str, head: str, source: str, asserts: tuple[str, ...]
) -> tuple[str, dict[str, Any]]:
    if form == "docstring":
        start = f'{head}\n    """A function that {does}."""\n'
        checks = "\n".join(f"    {line}" for line in asserts).replace(f"{name}(", "candidate(")
        body = source.partition("\n")[2] + "\n"
        row = {"task_id": "0", "prompt": start, "entry_point": name, "canonical_solution": body}
        row["test"] = f"def check(candidate):\n{checks}\n"
        return humaneval.question(next(humaneval.problems([row]))).prompt, row
    text = f"Write a function that {does}."
    problem = mbpp.Problem("", text, name, asserts, "", source)
    return mbpp.question(problem).prompt, {
        "task_id": 11,
        "text": text,
        "code": source,
        "test_list": list(asserts),
        "test_setup_code": "",
    }


def _inputs(draw: random.Random, kind: Kind, constant: int) -> list[Any]:
    """Three different inputs; one of a list holds the constant."""
    if kind == "number":
        return [*several(draw, range(1, 100), 2), constant]
    if kind == "word":
        return several(draw, WORDS, 3)
    return [[constant, *several(draw, range(1, 30), 3)], several(draw, range(1, 30), 4), [1, 2, 3, 4, 5, 6]]
