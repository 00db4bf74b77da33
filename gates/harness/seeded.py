"""Draws of the gates' own question sets, and which questions no model may be trained on.

Every draw is one `Random.random`, so that a seed gives the same items in every Python version.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Final, TypeVar

Choice = TypeVar("Choice")

HELD_OUT_PART: Final = 8  # one question in so many is kept for judging


def random_for(seed: str) -> random.Random:
    """The random generator of a seed string, equal in every process and Python version."""
    return random.Random(int.from_bytes(hashlib.sha256(seed.encode("utf-8")).digest(), "big"))


def pick(draw: random.Random, choices: Sequence[Choice]) -> Choice:
    """One of `choices`, each equally likely."""
    return choices[int(draw.random() * len(choices))]


def number(draw: random.Random, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return low + int(draw.random() * (high - low + 1))


def several(draw: random.Random, choices: Sequence[Choice], count: int) -> list[Choice]:
    """So many different ones of `choices` in a random order; ValueError when there are fewer."""
    if count > len(choices):
        raise ValueError(f"{count} different ones are asked of {len(choices)}")
    left = list(choices)
    return [left.pop(int(draw.random() * len(left))) for _ in range(count)]


def words(text: str) -> tuple[str, ...]:
    """The words of a list that is written as one text."""
    return tuple(text.split())


def held_out(question: str) -> bool:
    """Whether a question is kept for judging, by its words alone: whoever trains leaves such a one out.

    The gates ask only questions that are, so no seed of a gate can meet one that a model was trained on.
    """
    return hashlib.sha256(question.encode("utf-8")).digest()[0] % HELD_OUT_PART == 0
