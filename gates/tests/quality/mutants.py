"""Programs with one token changed: what tests must notice."""

from __future__ import annotations

import io
import random
import tokenize
from collections.abc import Iterator
from typing import Final

from gates.quality.programs import tree

# one token for another of its kind
SWAPS: Final = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "+", "<": ">=", ">": "<=", "<=": ">", ">=": "<",
    "==": "!=", "!=": "==", "and": "or", "or": "and", "True": "False", "False": "True", "min": "max",
    "max": "min", "+=": "-=", "-=": "+=", "in": "not in", "if": "if not", "break": "continue",
}  # fmt: skip


def mutants(source: str) -> Iterator[str]:
    """Every program that differs from this one in one token, and still parses."""
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        new = SWAPS.get(token.string)
        if token.type == tokenize.NUMBER and token.string.isdigit():
            new = str(int(token.string) + 1)
        if new is None or token.type not in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
            continue
        row, start = token.start
        line = lines[row - 1]
        changed = [*lines[: row - 1], line[:start] + new + line[token.end[1] :], *lines[row:]]
        if tree(mutant := "\n".join(changed)) is not None:
            yield mutant


def sample(sources: dict[str, str], *, count: int, seed: int) -> list[tuple[str, str]]:
    """So many mutants with the names of their sources, the same for the same seed."""
    every = [(name, mutant) for name, source in sources.items() for mutant in mutants(source)]
    return random.Random(seed).sample(every, count)
