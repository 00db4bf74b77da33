"""Harder word problems: larger sums, a sentence that does not matter, other wording, a step more."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Final

from gates.harness.seeded import number, pick, words
from gates.quality.mini.arithmetic import ONE_STEP, TWO_STEPS, Story, numbers, told
from gates.quality.mini.item import Draw, Item

KINDS: Final = {
    1: words("larger_numbers extra_sentence other_wording"),
    2: words("larger_numbers extra_sentence three_steps"),
}
OPENINGS: Final = (
    "It is a sunny day. ",
    "It is Monday. ",
    "{name} is in a good mood. ",
    "{name} lives in a small house. ",
)
OTHER_WORDING: Final = (
    Story("On Monday {name} collects {a} {things}, on Tuesday {b}. How many in all?", ("+",)),
    Story("A shop sells {a} {things} in the morning and {b} in the evening. How many in all?", ("+",)),
    Story("{name} needs {a} {things} and has {b}. How many {things} are missing?", ("-",)),
    Story("A shop has {a} {things} and sells {b} of them. How many {things} remain?", ("-",)),
    Story("{name} fills {a} bags with {b} {things} each. How many {things} does {name} need?", ("*",)),
    Story("{name} packs {a} {things} into {b} boxes, as many into each. How many are in one?", ("/",)),
)
THREE_STEPS: Final = (
    Story(
        "{name} has {a} {things}, finds {b} more, buys {c} and gives {d} away. How many are left?",
        ("+", "+", "-"),
    ),
    Story("{name} had {a} {things}, lost {b}, found {c} and lost {d}. How many are left?", ("-", "+", "-")),
    Story(
        "There are {a} boxes with {b} {things} in each, and {c} more. {name} takes {d} out. "
        "How many are left?",
        ("*", "+", "-"),
    ),
    Story("{name} buys {a} bags of {b} {things}, loses {c} and finds {d}. How many in all?", ("*", "-", "+")),
    Story(
        "{name} puts {a} {things} into {b} equal bags and adds {c} to one, then {d} more. How many has it?",
        ("/", "+", "+"),
    ),
)


def kinds(*, steps: int) -> tuple[Draw, ...]:
    """A draw of each harder kind of the set whose ordinary items have so many steps."""
    return tuple(partial(_draw_item, steps=steps, kind=kind) for kind in KINDS[steps])


def _draw_item(draw: random.Random, *, steps: int, kind: str) -> Item:
    stories = ONE_STEP if steps == 1 else TWO_STEPS
    if kind == "larger_numbers":
        return _larger(draw, kind, pick(draw, [story for story in stories if story.signs[0] == "+"]))
    if kind == "extra_sentence":
        story = pick(draw, stories)
        story = replace(story, text=pick(draw, OPENINGS) + story.text)
    else:
        story = pick(draw, OTHER_WORDING if kind == "other_wording" else THREE_STEPS)
    return told(draw, kind, story, numbers(draw, story.signs))


def _larger(draw: random.Random, kind: str, story: Story) -> Item:
    """A sum of two numbers that ordinary items seldom reach, and the further steps as there."""
    further = [number(draw, 2, 40) for _ in story.signs[1:]]
    return told(draw, kind, story, [number(draw, 45, 70), number(draw, 45, 70), *further])
