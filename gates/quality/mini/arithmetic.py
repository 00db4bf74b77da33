"""Word problems of one and two steps over small whole numbers, asked and graded like GSM8K.

Every number fits three digits; each step of the ideal reply is one line of the form `a + b = c`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from gates.harness.seeded import number, pick, several, words
from gates.quality import gsm8k
from gates.quality.mini.item import Item

Sign = Literal["+", "-", "*", "/"]

NAMES: Final = words(
    "Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karin Leo Mia Nina Oscar Paula Rosa Simon "
    "Tina Viktor"
)
THINGS: Final = words(
    "apples books cards coins cups eggs flowers letters marbles nails oranges pencils plates shells "
    "stamps stones tickets toys"
)


@dataclass(frozen=True, slots=True)
class Story:
    """A template, and the signs of its steps: the first joins a and b, each further one its result and c."""

    text: str
    signs: tuple[Sign, ...]


ONE_STEP: Final = (
    Story("{name} has {a} {things} and finds {b} more. How many {things} does {name} have now?", ("+",)),
    Story("{name} has {a} {things} and {other} has {b}. How many {things} do they have together?", ("+",)),
    Story("There are {a} {things} on the table. {name} adds {b}. How many {things} are there now?", ("+",)),
    Story("{name} has {a} {things} and gives {b} to {other}. How many {things} are left?", ("-",)),
    Story("There are {a} {things} in a box. {name} takes {b} out. How many {things} are left?", ("-",)),
    Story("{name} had {a} {things} and lost {b}. How many {things} does {name} still have?", ("-",)),
    Story("There are {a} boxes with {b} {things} in each. How many {things} are there?", ("*",)),
    Story("{name} buys {a} bags of {b} {things}. How many {things} does {name} buy?", ("*",)),
    Story("{name} puts {a} {things} into {b} equal bags. How many {things} are in each bag?", ("/",)),
    Story("{a} {things} are shared by {b} children. How many {things} does each child get?", ("/",)),
)
TWO_STEPS: Final = (
    Story("{name} has {a} {things}, finds {b} more and gives {c} away. How many are left?", ("+", "-")),
    Story("{name} has {a} {things}, {other} has {b} and a friend has {c}. How many in all?", ("+", "+")),
    Story("{name} had {a} {things}, lost {b} and then found {c}. How many does {name} have now?", ("-", "+")),
    Story("Of {a} {things}, {b} are sold and {c} are broken. How many {things} are left?", ("-", "-")),
    Story("There are {a} boxes with {b} {things} in each, and {c} more. How many in all?", ("*", "+")),
    Story("{name} buys {a} bags of {b} {things} and loses {c}. How many are left?", ("*", "-")),
    Story("{name} puts {a} {things} into {b} equal bags and adds {c} to one. How many has it?", ("/", "+")),
)
APPLY: Final[dict[Sign, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}


def draw_item(draw: random.Random, *, steps: int) -> Item:
    """Any item of so many steps."""
    story = pick(draw, ONE_STEP if steps == 1 else TWO_STEPS)
    return told(draw, "one_step" if steps == 1 else "two_steps", story, numbers(draw, story.signs))


def told(draw: random.Random, kind: str, story: Story, drawn: Sequence[int]) -> Item:
    """The item of a story with these numbers, one more than it has signs."""
    lines, result = _solved(story.signs, drawn)
    name, other = several(draw, NAMES, 2)
    question = story.text.format(
        name=name, other=other, things=pick(draw, THINGS), **dict(zip("abcd", drawn, strict=False))
    )
    chain, end = "\n".join(lines), f"#### {result}"
    problem = gsm8k.Problem("", question, Decimal(result))
    return Item(
        kind=kind,
        prompt=gsm8k.question(problem).prompt,
        row={"question": question, "answer": f"{chain}\n{end}"},
        reply=f"{chain}\n{end}",
        thought=chain,
        thoughtful=end,
    )


def equation(draw: random.Random) -> str:
    """One step alone, drawn as in the problems: `23 + 45 = 68`."""
    signs: tuple[Sign, ...] = ("+", "-", "*", "/")
    chosen = (pick(draw, signs),)
    return _solved(chosen, numbers(draw, chosen))[0][0]


def numbers(draw: random.Random, signs: Sequence[Sign]) -> list[int]:
    """The numbers of a story with these signs; no step goes below 1 or above 999."""
    found = list(_first(draw, signs[0]))
    result = APPLY[signs[0]](*found)
    for sign in signs[1:]:
        if sign == "-" and result < 2:
            return numbers(draw, signs)
        found.append(number(draw, 1, min(result - 1, 40)) if sign == "-" else number(draw, 2, 40))
        result = APPLY[sign](result, found[-1])
    return found


def _solved(signs: Sequence[Sign], given: Sequence[int]) -> tuple[list[str], int]:
    """Each step as a line, and the result."""
    lines, result = [], given[0]
    for sign, following in zip(signs, given[1:], strict=True):
        before, result = result, APPLY[sign](result, following)
        lines.append(f"{before} {sign} {following} = {result}")
    return lines, result


def _first(draw: random.Random, sign: Sign) -> tuple[int, int]:
    if sign == "+":
        return number(draw, 2, 60), number(draw, 2, 60)
    if sign == "-":
        a = number(draw, 5, 99)
        return a, number(draw, 2, min(a - 1, 60))
    a, b = number(draw, 2, 9), number(draw, 2, 12)
    return (a, b) if sign == "*" else (a * b, a)
