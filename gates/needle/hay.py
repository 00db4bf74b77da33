"""The text that hides the needles: generated prose, or a novel from the data folder, begun at a seeded place.

Owns where hay comes from and that it is the right file; knows nothing of tokens and needles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

from gates.errors import UsageError
from gates.needle import text
from gates.needle.plan import HayKind
from gates.needle.prose import random_for, sentences

NOVEL: Final = "haystack/war_and_peace_maude.txt"
NOVEL_SHA256: Final = "237b95785cda5bf4ff87b19b680c6b6e7497afe56d72b568968d80ee9a233a79"


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
    """The hay of a profile; `data` is the folder of SPARKGATE_DATA.  UsageError says what is missing."""
    if kind == "prose":
        return Prose()
    return Novel(read_novel(data))


def read_novel(data: Path | None) -> str:
    """The text of the novel, checked by its digest; UsageError when it is not there or not that text."""
    if data is None:
        raise UsageError(
            f"this profile hides its needles in a novel; set SPARKGATE_DATA to the folder that holds {NOVEL}"
            f" (sha256 {NOVEL_SHA256})"
        )
    path = data / NOVEL
    if not path.is_file():
        raise UsageError(f"there is no file {path}; SPARKGATE_DATA must name the folder that holds {NOVEL}")
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if found != NOVEL_SHA256:
        raise UsageError(f"{path} has sha256 {found}, wanted is {NOVEL_SHA256}; put the right text there")
    return raw.decode("utf-8")
