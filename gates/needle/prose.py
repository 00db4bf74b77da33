"""Readable English prose from a seed: the hay of every needle cell that needs no data file.

Owns the draws and what each slot of a pattern means; words come from ``words``, sentences from ``patterns``.
The text has no digit in it and is the same in every Python version: every draw is one ``Random.random``.
Knows nothing of needles.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from gates.needle import patterns, words

Choice = TypeVar("Choice")

_SLOT: Final = re.compile(r"\{(\w+)\}")
_ARTICLE: Final = re.compile(r"\b([Aa]) (?=[aeiou])")
_PAUSE: Final = "\n\n"


def random_for(seed: str) -> random.Random:
    """The random generator of a seed string, equal in every process and Python version."""
    return random.Random(int.from_bytes(hashlib.sha256(seed.encode("utf-8")).digest(), "big"))


def pick(draw: random.Random, choices: Sequence[Choice]) -> Choice:
    """One of ``choices``, each equally likely, from one call of ``draw.random()``."""
    return choices[int(draw.random() * len(choices))]


def past(verb: str) -> str:
    """The past tense of an entry of the word stock (``carry/carried``, or a regular base)."""
    stem, _, irregular = verb.partition("/")
    return (irregular or stem + ("d" if stem.endswith("e") else "ed")).replace("-", " ")


def infinitive(verb: str) -> str:
    """The base form of an entry of the word stock."""
    return verb.partition("/")[0].replace("-", " ")


def plural(noun: str) -> str:
    """The plural of a noun of the word stock."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun in _PLURALS:
        return _PLURALS[noun]
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"


_PLURALS: Final = {
    "knife": "knives",
    "loaf": "loaves",
    "shelf": "shelves",
    "watchman": "watchmen",
    "thief": "thieves",
    "coachman": "coachmen",
    "fisherman": "fishermen",
    "midwife": "midwives",
    "ferryman": "ferrymen",
}


class _Paragraph:
    """Draws the words of one paragraph; its two people stay the same from the first sentence to the last."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._woman = draw.random() < 0.5
        self._name = pick(draw, words.WOMEN if self._woman else words.MEN)
        self._other = pick(draw, words.MEN if self._woman else words.WOMEN)

    def write(self, pattern: str) -> str:
        """The pattern with every slot drawn, articles set right, first letter capital."""
        text = _ARTICLE.sub(r"\1n ", _SLOT.sub(self._fill, pattern))
        first = 1 if text.startswith('"') else 0
        return text[:first] + text[first].upper() + text[first + 1 :]

    def _fill(self, slot: re.Match[str]) -> str:
        name = slot[1]
        if name.endswith("_cap"):
            text = self._word(name[:-4])
            return text[0].upper() + text[1:]
        return self._word(name)

    def _word(self, slot: str) -> str:
        simple = _LISTS.get(slot)
        if simple is not None:
            return pick(self._draw, simple)
        verbs = _VERBS.get(slot)
        if verbs is not None:
            return past(pick(self._draw, verbs))
        if slot.endswith("_past"):
            return _PARTICIPLES.get(chosen := past(pick(self._draw, _VERBS[slot[:-5]])), chosen)
        if slot.endswith("_base"):
            return infinitive(pick(self._draw, _VERBS[slot[:-5]]))
        return self._person(slot) or self._phrase(slot)

    def _person(self, slot: str) -> str | None:
        if slot == "name":
            return self._name
        if slot == "other":
            return self._other
        if slot in ("relative", "relative_word", "a_relative"):
            relative = pick(self._draw, words.RELATIVES_F if self._woman else words.RELATIVES_M)
            return {"relative": "the ", "relative_word": "", "a_relative": "a "}[slot] + relative
        pronouns = ("she", "her", "her") if self._woman else ("he", "his", "him")
        return dict(zip(("he", "his", "him"), pronouns, strict=True)).get(slot)

    def _phrase(self, slot: str) -> str:
        draw = self._draw
        if slot == "at_place":
            return f"{pick(draw, patterns.PREPOSITIONS)} {self._phrase('place')}"
        if slot == "year":
            return f"eighteen {pick(draw, words.TENS)}-{pick(draw, words.UNITS)}"
        if slot == "the_tree":
            return f"the {pick(draw, words.TREES)}"
        article, _, kind = slot.rpartition("_") if slot.startswith("a_") else ("the", "", slot)
        if kind.endswith("_plural"):
            return plural(pick(draw, _NOUNS[kind[:-7]][0]))
        nouns, adjectives = _NOUNS[kind]
        adjective = f"{pick(draw, adjectives)} " if draw.random() < 0.45 else ""
        return f"{article} {adjective}{pick(draw, nouns)}"


_LISTS: Final = {
    "town": words.TOWNS, "manner": words.MANNER, "adv": words.TIME_ADVERBS, "degree": words.DEGREE,
    "padj": words.PERSON_ADJECTIVES, "tadj": words.THING_ADJECTIVES, "ladj": words.PLACE_ADJECTIVES,
    "nadj": words.NATURE_ADJECTIVES, "iadj": words.IDEA_ADJECTIVES, "goods": words.GOODS, "body": words.BODY,
    "month": words.MONTHS, "day": words.DAYS, "season": words.SEASONS, "ordinal": words.ORDINALS,
    "number": words.NUMBERS, "duration": words.DURATIONS, "time": words.TIME_PHRASES, "open": words.OPENINGS,
    "tree": words.TREES, "thing_word": words.THINGS, "idea_word": words.IDEAS, "nothing": patterns.NOTHING,
    "body_verb": patterns.BODY_VERBS,
}  # fmt: skip
_VERBS: Final = {
    "vt": words.VERBS_TRANSITIVE, "vp": words.VERBS_PEOPLE, "vm": words.VERBS_MOTION, "vr": words.VERBS_REST,
    "vs": words.VERBS_SAY, "vth": words.VERBS_THINK, "vn": words.VERBS_NATURE, "va": words.VERBS_ANIMAL,
    "vstate": words.VERBS_STATE, "vwonder": words.VERBS_WONDER,
}  # fmt: skip
_NOUNS: Final = {
    "role": (words.ROLES, words.PERSON_ADJECTIVES), "thing": (words.THINGS, words.THING_ADJECTIVES),
    "place": (words.PLACES, words.PLACE_ADJECTIVES), "animal": (words.ANIMALS, words.ANIMAL_ADJECTIVES),
    "idea": (words.IDEAS, words.IDEA_ADJECTIVES), "nature": (words.NATURE, words.NATURE_ADJECTIVES),
    "part": (words.PARTS, words.THING_ADJECTIVES),
}  # fmt: skip
_PARTICIPLES: Final = {
    "forgot": "forgotten", "hid": "hidden", "stole": "stolen", "took": "taken", "broke": "broken",
    "threw": "thrown", "chose": "chosen", "tore": "torn", "drove": "driven", "rode": "ridden",
    "ran": "run", "went": "gone", "came": "come", "swam": "swum", "wrote": "written", "fell": "fallen",
    "rose": "risen",
}  # fmt: skip


def _paragraph(draw: random.Random) -> Iterator[str]:
    writer = _Paragraph(draw)
    length = 3 + int(draw.random() * 5)  # 3 to 7 sentences
    yield writer.write(pick(draw, patterns.OPENING))
    for _ in range(length - 2):
        kind = patterns.DIALOGUE if draw.random() < 0.2 else patterns.MIDDLE
        yield writer.write(pick(draw, kind))
    yield writer.write(pick(draw, patterns.CLOSING)) + _PAUSE


def sentences(seed: str) -> Iterator[str]:
    """Endless sentences of the seed, each with the white space that follows it (a blank, or a blank line)."""
    draw = random_for(seed)
    while True:
        for sentence in _paragraph(draw):
            yield sentence if sentence.endswith(_PAUSE) else sentence + " "


def prose(seed: str, characters: int) -> str:
    """Whole sentences of the seed, at most ``characters`` long together, as many as fit.

    Raises ``ValueError`` for a negative length.  A longer text of one seed starts with the shorter one.
    """
    if characters < 0:
        raise ValueError(f"prose length is {characters} characters; allowed are 0 or more")
    parts: list[str] = []
    room = characters
    for sentence in sentences(seed):
        if len(sentence.rstrip()) > room:
            return "".join(parts).rstrip()
        parts.append(sentence)
        room -= len(sentence)
    raise AssertionError("the stream of sentences is endless")
