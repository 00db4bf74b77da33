"""The text that hides the needles: generated prose, or a novel begun at a seeded place.

Owns how either becomes an endless row of sentences; knows nothing of tokens and needles.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Protocol

from gates.needle import novel, text
from gates.needle.plan import HayKind
from gates.needle.prose import random_for, sentences


class Hay(Protocol):
    """Where the sentences of a cell come from."""

    def sentences(self, seed: str) -> Iterator[str]:
        """Endless (or at least as many as there are) sentences of the seed, each with the blank after it."""


class Prose:
    """Generated prose, endless and different for every seed."""

    def sentences(self, seed: str) -> Iterator[str]:
        """Endless sentences."""
        return sentences(seed)


class Novel:
    """War and Peace, translated by L. and A. Maude (public domain): from a seeded sentence on, then round."""

    def __init__(self, whole: str) -> None:
        ends = text.sentence_ends(whole)
        starts = [0, *ends[:-1]]
        self._sentences = tuple(
            " ".join(whole[start:end].split()) + _gap(whole, end)
            for start, end in zip(starts, ends, strict=True)
        )

    def sentences(self, seed: str) -> Iterator[str]:
        """Every sentence of the book once, from a seeded place on."""
        start = int(random_for(seed).random() * len(self._sentences))
        return chain(self._sentences[start:], self._sentences[:start])


def _gap(whole: str, end: int) -> str:
    """The white space after a sentence, cut to one blank or one empty line."""
    following = whole[end : end + 4]
    return "\n\n" if following.startswith("\n\n") else " "


def open_hay(kind: HayKind, data: Path | None) -> Hay:
    """The hay of a profile; `data` is the folder of SPARKGATE_DATA.  UsageError when it is not there."""
    if kind == "prose":
        return Prose()
    return Novel(novel.read_novel(data))
