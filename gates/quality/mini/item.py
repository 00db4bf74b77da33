"""One question of a set of our own, and how questions are drawn for judging and for training.

A question is kept for judging or may be trained on, by the hash of its words (`seeded.held_out`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.harness.seeded import held_out, random_for

Draw = Callable[[random.Random], "Item"]

HARDER_EVERY: Final = 3  # one item in so many is drawn from the harder range, in every set and profile


@dataclass(frozen=True, slots=True)
class Item:
    """One question: its kind, the user message, a row as the public set has it, and the ideal replies.

    `reply` answers without thinking; `thought` and `thoughtful` are reasoning and answer with thinking.
    """

    kind: str
    prompt: str
    row: Mapping[str, Any]
    reply: str
    thought: str
    thoughtful: str


def drawn(draw: random.Random, make: Draw, *, judging: bool) -> Item:
    """The next item that is kept for judging, or the next that is not."""
    while True:
        item = make(draw)
        if held_out(item.prompt) == judging:
            return item


def judged(seed: str, count: int, *, ordinary: Draw, harder: Sequence[Draw]) -> list[Item]:
    """So many different items for judging, every third a harder one, of each kind of these in turn.

    ValueError when the set has too few.
    """
    draw = random_for(seed)
    found: dict[str, Item] = {}
    for _ in range(100 * count + 1000):
        if len(found) == count:
            break
        turn, rest = divmod(len(found) + 1, HARDER_EVERY)
        item = drawn(draw, ordinary if rest else harder[turn % len(harder)], judging=True)
        found.setdefault(item.prompt, item)
    if len(found) < count:
        raise ValueError(f"{count} different items are asked for, the set gives {len(found)}")
    return list(found.values())
