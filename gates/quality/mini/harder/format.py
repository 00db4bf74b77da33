"""Harder format items: two instructions at once, and more keywords than ordinary items want."""

from __future__ import annotations

import random
from typing import Final

from gates.harness.seeded import pick, several
from gates.quality.mini.format import KEYWORDS, KINDS, Asked, told
from gates.quality.mini.item import Draw, Item
from gates.quality.mini.topics import TOPICS

NO_COMMA: Final = "punctuation:no_comma"
HARDER_KINDS: Final = ("two_instructions", "three_keywords")  # of the kinds, in their turn
ORDERS: Final = ("Do not use any commas.", "Your answer must not contain commas.")
WITHOUT_COMMAS: Final = (  # whose ideal replies stay right without them
    "detectable_format:title",
    "startend:quotation",
    "detectable_content:postscript",
    "change_case:english_lowercase",
)


def kinds() -> tuple[Draw, ...]:
    """A draw of each harder kind."""
    return _two_instructions, _three_keywords


def _two_instructions(draw: random.Random) -> Item:
    """An ordinary instruction, and no commas."""
    topic = pick(draw, TOPICS)
    first = pick(draw, WITHOUT_COMMAS)
    found = KINDS[first](draw, topic)
    reply = found.reply.replace(",", "")
    asked = Asked(
        f"{found.words} {pick(draw, ORDERS)}", {}, reply, f"{found.thought} I leave out all commas."
    )
    return told(draw, "two_instructions", topic, {first: found.arguments, NO_COMMA: {}}, asked)


def _three_keywords(draw: random.Random) -> Item:
    """One keyword more than the ordinary items want at most."""
    topic = pick(draw, TOPICS)
    chosen = several(draw, KEYWORDS, 3)
    listed = f"{chosen[0]}, {chosen[1]} and {chosen[2]}"
    reply = f"{' '.join(topic.sentences()[:2])} I also think of {listed}."
    asked = Asked(f"Use the keywords {listed}.", {}, reply, f"I must use {listed}.")
    return told(draw, "three_keywords", topic, {"keywords:existence": {"keywords": chosen}}, asked)
