"""Harder choices: near names, facts of two kinds in any order, and the question the other way round."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from gates.harness.seeded import number, pick, several, words
from gates.quality.mini.arithmetic import NAMES
from gates.quality.mini.choice import TOPICS, facts, told
from gates.quality.mini.item import Draw, Item

KINDS: Final = ("near_names", "mixed_facts", "other_way_round")
NEAR_NAMES: Final = (
    words("Anna Anne Annie Hanna Joanna"),
    words("Jan Jana Jane Janet Janine"),
    words("Karl Karla Carl Carla Karlo"),
    words("Marc Mark Marco Martin Marta"),
    words("Lena Elena Lina Helena Lana"),
)
WHO: Final = {
    "town": "Who lives in {value}?",
    "colour": "Who has a house that is {value}?",
    "animal": "Who has a {value}?",
    "job": "Who works as a {value}?",
    "food": "Who likes to eat {value}?",
    "age": "Who is {value} years old?",
}


def kinds() -> tuple[Draw, ...]:
    """A draw of each harder kind."""
    return tuple(partial(_draw_item, kind=kind) for kind in KINDS)


def _draw_item(draw: random.Random, *, kind: str) -> Item:
    """Again four people, and four choices of which one is right."""
    topic, other = several(draw, TOPICS, 2)
    names = several(draw, pick(draw, NEAR_NAMES) if kind == "near_names" else NAMES, 4)
    values = several(draw, topic.values, 4)
    asked = number(draw, 0, 3)
    stated = facts(topic, names, values)
    fact = stated[asked]
    if kind == "mixed_facts":
        stated += facts(other, names, several(draw, other.values, 4))
        stated = several(draw, stated, len(stated))
    question = pick(draw, topic.questions).format(name=names[asked])
    answers = values
    if kind == "other_way_round":
        question, answers = WHO[topic.name].format(value=values[asked]), names
    return told(kind, f"{' '.join(stated)} {question}", several(draw, answers, 4), fact, answers[asked])
