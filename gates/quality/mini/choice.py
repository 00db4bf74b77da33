"""Four choices over facts that the question itself states, asked and graded like MMLU."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gates.harness.seeded import pick, several, words
from gates.quality import mmlu
from gates.quality.mini.arithmetic import NAMES
from gates.quality.mini.item import Item

LETTERS: Final = mmlu.LETTERS


@dataclass(frozen=True, slots=True)
class Topic:
    """One kind of facts: the statement, the questions, and the values."""

    name: str
    fact: str
    questions: tuple[str, ...]
    values: tuple[str, ...]


TOPICS: Final = (
    Topic(
        "town",
        "{name} lives in {value}.",
        ("Where does {name} live?", "In which town does {name} live?"),
        words("Rome Oslo Paris Lima Cairo Delhi Tokyo Berlin Madrid Vienna Dublin Athens"),
    ),
    Topic(
        "colour",
        "The house of {name} is {value}.",
        ("What colour is the house of {name}?", "Which colour has the house of {name}?"),
        words("red blue green yellow white black brown grey pink orange purple golden"),
    ),
    Topic(
        "animal",
        "{name} has a {value}.",
        ("Which animal does {name} have?", "What animal belongs to {name}?"),
        words("dog cat horse goat duck sheep bird fish cow pig mouse frog"),
    ),
    Topic(
        "job",
        "{name} works as a {value}.",
        ("What is the job of {name}?", "What does {name} work as?"),
        words("baker doctor teacher farmer sailor painter tailor writer nurse cook lawyer driver"),
    ),
    Topic(
        "food",
        "{name} likes to eat {value}.",
        ("What does {name} like to eat?", "Which food does {name} like?"),
        words("bread rice soup cheese cake fruit eggs beans honey corn butter nuts"),
    ),
    Topic(
        "age",
        "{name} is {value} years old.",
        ("How old is {name}?", "What is the age of {name}?"),
        tuple(str(age) for age in range(11, 71)),
    ),
)


def walk(choices: Sequence[str]) -> str:
    """Thoughts that go through the choices and name the letter of each."""
    lines = zip(LETTERS, choices, strict=True)
    return " ".join(f"{letter}. {value} is {letter}." for letter, value in lines)


def draw_item(draw: random.Random) -> Item:
    """Any item: four facts of one kind about four people, a question about one of them."""
    topic = pick(draw, TOPICS)
    names = several(draw, NAMES, 4)
    values = several(draw, topic.values, 4)
    asked = int(draw.random() * 4)
    choices = several(draw, values, 4)
    stated = facts(topic, names, values)
    question = f"{' '.join(stated)} {pick(draw, topic.questions).format(name=names[asked])}"
    return told(topic.name, question, choices, stated[asked], values[asked])


def facts(topic: Topic, names: Sequence[str], values: Sequence[str]) -> list[str]:
    """What holds of each of these people, a sentence each."""
    return [topic.fact.format(name=n, value=v) for n, v in zip(names, values, strict=True)]


def told(kind: str, question: str, choices: Sequence[str], fact: str, answer: str) -> Item:
    """The item of a question with its four choices, of which the fact shows the right one."""
    letter = LETTERS[choices.index(answer)]
    problem = mmlu.Problem("", kind, 0, question, tuple(choices), letter)
    row = {"subject": kind, "index": 0, "question": question, "choices": choices, "answer": letter}
    thought = f"{walk(choices)} {fact} That is {letter}."
    return Item(kind, mmlu.question(problem).prompt, row, letter, thought, letter)
