"""Harder functions: larger constants, other argument names, a second sentence, two parts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from gates.harness.seeded import number, pick, several, words
from gates.quality.mini.code import ARGUMENTS, FAMILIES, Family, Form, Kind, told
from gates.quality.mini.item import Draw, Item

KINDS: Final[dict[Form, tuple[str, ...]]] = {
    "docstring": words("large_constant other_argument two_sentences two_parts"),
    "asserts": words("large_constant two_sentences"),  # these do not tell the argument
}
OTHER_ARGUMENTS: Final[dict[Kind, tuple[str, ...]]] = {
    "number": words("amount count total"),
    "word": words("title line phrase"),
    "list": words("rows scores sizes"),
}
WIDE: Final = tuple(  # families whose constant may be any number
    family for family in FAMILIES if family.kind != "word" and family.name not in ("take_{n}", "drop_{n}")
)


@dataclass(frozen=True, slots=True)
class TwoParts:
    """A function of a number that does two things, with a constant each: `n` and `m`."""

    name: str
    does: str
    expression: str
    meaning: Callable[[int, int, int], Any]

    def family(self, second: int) -> Family:
        """The family whose second constant is this one."""

        def filled(text: str) -> str:
            return text.replace("{m}", str(second))

        texts = filled(self.name), filled(self.does), filled(self.expression)
        return Family(*texts, "number", lambda x, n: self.meaning(x, n, second))


TWO_PARTS: Final = (
    TwoParts("add_{n}_times_{m}", "adds {n} to a number and multiplies the result by {m}",
             "({x} + {n}) * {m}", lambda x, n, m: (x + n) * m),
    TwoParts("times_{n}_plus_{m}", "multiplies a number by {n} and adds {m}",
             "{x} * {n} + {m}", lambda x, n, m: x * n + m),
    TwoParts("times_{n}_minus_{m}", "multiplies a number by {n} and subtracts {m}",
             "{x} * {n} - {m}", lambda x, n, m: x * n - m),
    TwoParts("add_{n}_rest_by_{m}", "adds {n} to a number and gives the rest of the sum divided by {m}",
             "({x} + {n}) % {m}", lambda x, n, m: (x + n) % m),
    TwoParts("between_{n}_and_{m}", "tells whether a number is greater than {n} and less than {m}",
             "{n} < {x} < {m}", lambda x, n, m: n < x < m),
)  # fmt: skip


def kinds(*, form: Form) -> tuple[Draw, ...]:
    """A draw of each harder kind of a form."""
    return tuple(partial(_draw_item, form=form, kind=kind) for kind in KINDS[form])


def _draw_item(draw: random.Random, *, form: Form, kind: str) -> Item:
    if kind == "two_parts":
        first = number(draw, 2, 30)
        second = first + number(draw, 2, 29)
        family = pick(draw, TWO_PARTS).family(second)
        edges = (first + 1, second - 1, second)
        return told(draw, kind, form, family, first, arguments=ARGUMENTS["number"], further=edges)
    family, other = several(draw, WIDE, 2)
    if kind == "large_constant":
        large = number(draw, 100, 999)
        beside = (large - 1, large + 1) if family.kind == "number" else ()
        return told(draw, kind, form, family, large, arguments=ARGUMENTS[family.kind], further=beside)
    constant, another = several(draw, range(2, 61), 2)
    if kind == "other_argument":
        return told(draw, kind, form, family, constant, arguments=OTHER_ARGUMENTS[family.kind])
    family = replace(family, does=f"{family.does}. Another function {other.does.format(n=another)}")
    return told(draw, kind, form, family, constant, arguments=ARGUMENTS[family.kind])
