"""Short texts with one instruction that a program can check, asked and graded like IFEval.

A kind knows the words of its instruction, its arguments, and the ideal reply; what is written about comes
from `topics.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.harness.seeded import number, pick, several, words
from gates.quality.mini.item import Item
from gates.quality.mini.topics import TOPICS, Topic

ENDINGS: Final = (
    "That is all.", "Have a nice day.", "I hope this helps.", "Come and see it.", "What do you think?",
    "Thank you for reading.", "See you soon.", "Is there anything else?", "This is the end.",
    "Tell me what you think.", "Do not forget it.", "Let me know if you want more.",
)  # fmt: skip
KEYWORDS: Final = words(
    "window copper summer ladder silver thunder pocket mirror candle button winter orange paper shadow "
    "honey feather basket blanket engine ribbon corner pepper island needle lantern"
)
_COUNTS: Final = ("zero", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True, slots=True)
class Asked:
    """One instruction: its words, the arguments of its checker, the ideal reply, a thought about it."""

    words: str
    arguments: Mapping[str, Any]
    reply: str
    thought: str


Kind = Callable[[random.Random, Topic], Asked]


def draw_item(draw: random.Random) -> Item:
    """Any item of any kind."""
    kind = pick(draw, tuple(KINDS))
    topic = pick(draw, TOPICS)
    asked = KINDS[kind](draw, topic)
    return told(draw, kind, topic, {kind: asked.arguments}, asked)


def told(
    draw: random.Random, kind: str, topic: Topic, instructions: Mapping[str, Mapping[str, Any]], asked: Asked
) -> Item:
    """The item about a topic that `asked` describes; the arguments of its checkers stand by instruction."""
    opening = pick(draw, ("Write about", "Tell me about", "Describe", "Say something about"))
    prompt = f"{opening} the {topic.noun}. {asked.words}"
    arguments = [dict(found) for found in instructions.values()]
    row = {"key": 0, "prompt": prompt, "instruction_id_list": list(instructions), "kwargs": arguments}
    return Item(kind, prompt, row, asked.reply, asked.thought, asked.reply)


def _text(topic: Topic, count: int) -> str:
    return " ".join(topic.sentences()[:count])


def _capital(draw: random.Random, topic: Topic) -> Asked:
    """Three sentences or more: in shorter capitals the grader's language check sees other languages."""
    count = number(draw, 3, 4)
    order = pick(draw, ("Use capital letters only.", "Your whole answer must be in capital letters."))
    reply = _plain_english(topic, count).upper()
    return Asked(f"Write {_counted(count)}. {order}", {}, reply, "I write in capital letters.")


def _lowercase(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 1, 4)
    order = pick(draw, ("Use small letters only.", "No capital letters are allowed."))
    reply = _plain_english(topic, count).lower()
    return Asked(f"Write {_counted(count)}. {order}", {}, reply, "I write in small letters.")


def _plain_english(topic: Topic, count: int) -> str:
    """Up to four sentences, those with the commonest words first."""
    _, _, visit, belong, friend, think = topic.sentences()
    return " ".join((visit, friend, think, belong)[:count])


def _bullets(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 2, 6)
    order = pick(
        draw, ("Answer with exactly {n} bullet points.", "Your answer must be a list of {n} bullets.")
    )
    reply = "\n".join(f"* {sentence}" for sentence in topic.sentences()[:count])
    return Asked(order.format(n=count), {"num_bullets": count}, reply, f"I need {count} bullets.")


def _no_comma(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 2, 6)
    order = pick(draw, ("Do not use any commas.", "Your answer must not contain commas."))
    reply = _text(topic, count).replace(",", "")
    return Asked(f"Write {_counted(count)}. {order}", {}, reply, "I leave out all commas.")


def _json(draw: random.Random, topic: Topic) -> Asked:
    keys = several(draw, ("name", "place", "time", "look", "more"), number(draw, 2, 3))
    known = {"name": topic.noun, "place": topic.place, "time": topic.time, "look": topic.first}
    value = {key: known.get(key, topic.pair) for key in keys}
    order = pick(draw, ("Answer in JSON with the keys {k}.", "Give a JSON object with the keys {k}."))
    listed = f"{', '.join(keys[:-1])} and {keys[-1]}"
    return Asked(order.format(k=listed), {}, json.dumps(value), f"I write JSON with {listed}.")


def _ending(draw: random.Random, topic: Topic) -> Asked:
    phrase, count = pick(draw, ENDINGS), number(draw, 1, 3)
    order = pick(draw, ("Finish with the words: {p}", "The last sentence must be: {p}"))
    reply = f"{_text(topic, count)} {phrase}"
    return Asked(
        f"Write {_counted(count)}. {order.format(p=phrase)}",
        {"end_phrase": phrase},
        reply,
        "The end is given.",
    )


def _at_least(draw: random.Random, topic: Topic) -> Asked:
    wanted = 5 * number(draw, 2, 8)
    count = next(n for n in range(1, 7) if len(_text(topic, n).split()) >= wanted)
    return Asked(
        f"Use at least {wanted} words.",
        {"num_words": wanted, "relation": "at least"},
        _text(topic, count),
        f"I need {wanted} words.",
    )


def _less_than(draw: random.Random, topic: Topic) -> Asked:
    wanted = 5 * number(draw, 3, 8)
    count = max(n for n in range(1, 7) if len(_text(topic, n).split()) < wanted)
    return Asked(
        f"Use less than {wanted} words.",
        {"num_words": wanted, "relation": "less than"},
        _text(topic, count),
        f"I stay below {wanted} words.",
    )


def _paragraphs(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 2, 4)
    order = pick(draw, ("Write {n} paragraphs with *** between them.", "Put *** between {n} paragraphs."))
    reply = "\n\n***\n\n".join(topic.sentences()[:count])
    return Asked(
        order.format(n=_COUNTS[count]), {"num_paragraphs": count}, reply, f"I need {count} paragraphs."
    )


def _keywords(draw: random.Random, topic: Topic) -> Asked:
    chosen = several(draw, KEYWORDS, number(draw, 1, 2))
    order = pick(draw, ("Use the keyword {k}.", "Your answer must contain the word {k}."))
    if len(chosen) == 2:
        order = "Use the keywords {k}."
    listed = " and ".join(chosen)
    reply = f"{_text(topic, 2)} I also think of {listed}."
    return Asked(order.format(k=listed), {"keywords": chosen}, reply, f"I must use {listed}.")


def _quotation(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 1, 3)
    order = pick(draw, ("Put the whole answer in double quotes.", "Wrap your answer in double quotes."))
    return Asked(f"Write {_counted(count)}. {order}", {}, f'"{_text(topic, count)}"', "I use quotes.")


def _title(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 1, 3)
    order = pick(draw, ("Give it a title in double angle brackets.", "Begin with a title like <<title>>."))
    return Asked(
        f"Write {_counted(count)}. {order}",
        {},
        f"<<The {topic.noun}>>\n{_text(topic, count)}",
        "It needs a title.",
    )


def _postscript(draw: random.Random, topic: Topic) -> Asked:
    count = number(draw, 1, 3)
    order = pick(draw, ("Add a postscript that begins with P.S.", "At the end add a note starting with P.S."))
    reply = f"{_text(topic, count)}\n\nP.S. {topic.sentences()[count]}"
    return Asked(
        f"Write {_counted(count)}. {order}",
        {"postscript_marker": "P.S."},
        reply,
        "I add a postscript.",
    )


def _sentences(draw: random.Random, topic: Topic) -> Asked:
    limit = number(draw, 2, 6)
    return Asked(
        f"Use less than {_COUNTS[limit]} sentences.",
        {"num_sentences": limit, "relation": "less than"},
        _text(topic, limit - 1),
        f"I write {_COUNTS[limit - 1]} of them.",
    )


def _counted(count: int) -> str:
    return f"{_COUNTS[count]} sentence{'s' * (count > 1)}"


KINDS: Final[Mapping[str, Kind]] = {
    "change_case:english_capital": _capital,
    "change_case:english_lowercase": _lowercase,
    "detectable_format:number_bullet_lists": _bullets,
    "punctuation:no_comma": _no_comma,
    "detectable_format:json_format": _json,
    "startend:end_checker": _ending,
    "length_constraints:number_words": lambda draw, topic: (_at_least if draw.random() < 0.5 else _less_than)(
        draw, topic
    ),
    "length_constraints:number_paragraphs": _paragraphs,
    "keywords:existence": _keywords,
    "startend:quotation": _quotation,
    "detectable_format:title": _title,
    "detectable_content:postscript": _postscript,
    "length_constraints:number_sentences": _sentences,
}
