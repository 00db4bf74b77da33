"""What the clients of a load profile ask, drawn from a seed: mixed lengths, and some that leave.

Pure.  Every prompt is unlike all others, so that an answer that went to the wrong client shows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

WORDS = ("river", "stone", "lamp", "green", "seven", "walks", "under", "the", "old", "bridge", "and", "sings")
LEAVERS = 0.2
LETTERS_A_WORD = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of request: its share, words of prompt, tokens of answer."""

    share: float
    words: tuple[int, int]
    tokens: tuple[int, int]


SHAPES = (
    Shape(0.6, (5, 40), (8, 32)),
    Shape(0.3, (60, 200), (16, 64)),
    Shape(0.1, (400, 900), (8, 32)),
)


@dataclass(frozen=True, slots=True)
class Item:
    """One request; `leave_after` ids its client is gone, if it leaves."""

    number: int
    body: dict[str, Any]
    leave_after: int | None


def plan(count: int, seed: int, *, context: int) -> list[Item]:
    """`count` requests of all shapes that fit a context of so many tokens, even with one token a letter."""
    draw = random.Random(seed)
    return [_item(number, draw, longest=context // LETTERS_A_WORD) for number in range(count)]


def _item(number: int, draw: random.Random, *, longest: int) -> Item:
    shape = draw.choices(SHAPES, weights=[shape.share for shape in SHAPES])[0]
    words = draw.choices(WORDS, k=min(longest, draw.randint(*shape.words)))
    tokens = draw.randint(*shape.tokens)
    body = {
        "messages": [{"role": "user", "content": f"Number {number}. {' '.join(words)}"}],
        "max_tokens": tokens,
        "temperature": 1.0,
        "seed": number,
    }
    return Item(number, body, draw.randint(0, tokens // 2) if draw.random() < LEAVERS else None)
