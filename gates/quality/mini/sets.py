"""The question sets of our own in the shape that every set has: how each item is asked and graded.

The graders are those of the public sets; only this module of `mini` needs their libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from gates.quality import gsm8k, humaneval, ifeval, mbpp, mmlu
from gates.quality.asking import Question
from gates.quality.mini import arithmetic, choice, code
from gates.quality.mini import format as formats
from gates.quality.mini.harder import arithmetic as harder_sums
from gates.quality.mini.harder import choice as harder_choice
from gates.quality.mini.harder import code as harder_code
from gates.quality.mini.harder import format as harder_formats
from gates.quality.mini.item import Item, judged
from gates.quality.sets import Grader
from gates.quality.sets import Item as Asked

MAX_TOKENS: Final = 256

GRADERS: Final[Mapping[str, str]] = {
    "mini_arithmetic": gsm8k.GRADER_VERSION,
    "mini_two_steps": gsm8k.GRADER_VERSION,
    "mini_choice": mmlu.GRADER_VERSION,
    "mini_docstring": humaneval.GRADER_VERSION,
    "mini_asserts": mbpp.GRADER_VERSION,
    "mini_format": ifeval.grader_version(),
}
ITEMS_VERSION: Final = "3"  # counted up where a seed gives other items, or tests of them
DRAWN: Final[Mapping[str, Callable[[str, int], list[Item]]]] = {
    "mini_arithmetic": partial(
        judged,
        ordinary=partial(arithmetic.draw_item, steps=1),
        harder=harder_sums.kinds(steps=1),
    ),
    "mini_two_steps": partial(
        judged,
        ordinary=partial(arithmetic.draw_item, steps=2),
        harder=harder_sums.kinds(steps=2),
    ),
    "mini_choice": partial(judged, ordinary=choice.draw_item, harder=harder_choice.kinds()),
    "mini_docstring": partial(
        judged,
        ordinary=partial(code.draw_item, form="docstring"),
        harder=harder_code.kinds(form="docstring"),
    ),
    "mini_asserts": partial(
        judged,
        ordinary=partial(code.draw_item, form="asserts"),
        harder=harder_code.kinds(form="asserts"),
    ),
    "mini_format": partial(judged, ordinary=formats.draw_item, harder=harder_formats.kinds()),
}


HARDER: Final[Mapping[str, tuple[str, ...]]] = {  # which categories of a set are its harder kinds
    "mini_arithmetic": tuple(harder_sums.KINDS[1]),
    "mini_two_steps": tuple(harder_sums.KINDS[2]),
    "mini_choice": harder_choice.KINDS,
    "mini_docstring": harder_code.KINDS["docstring"],
    "mini_asserts": harder_code.KINDS["asserts"],
    "mini_format": harder_formats.HARDER_KINDS,
}


def load(name: str, seed: str, count: int) -> list[Asked]:
    """So many items of a set of our own; ids hold the set and the place, categories the kind of item."""
    found = DRAWN[name](f"{name}/{seed}", count)
    return [_asked(f"{name}/{place}", item, grader(name, place, item)) for place, item in enumerate(found)]


def _asked(item_id: str, item: Item, grade: Grader) -> Asked:
    return Asked(Question(item_id, item.prompt, MAX_TOKENS), grade, cluster=item_id, category=item.kind)


def grader(name: str, place: int, item: Item) -> Grader:
    """How the replies to an item are graded: as the public set that it imitates does."""
    row = item.row
    if "answer" in row and "choices" not in row:
        return partial(gsm8k.grade, replace(next(gsm8k.problems(iter([row]))), id=f"{name}/{place}"))
    if "choices" in row:
        return partial(mmlu.grade, next(mmlu.problems([row])))
    if "entry_point" in row:
        return partial(humaneval.program, next(humaneval.problems([row])))
    if "test_list" in row:
        return partial(mbpp.program, next(mbpp.problems([row])))
    return partial(ifeval.grade, next(ifeval.problems([row])))
