"""Seeded prompts with instructions and replies that follow some of them: what two graders are compared on.

Knows the kinds of instructions and their arguments; grades nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from gates.quality.ifeval import Instruction, Problem

Arguments = Callable[[Random], dict[str, Any]]
Follow = Callable[[str, dict[str, Any], Random], str]

RELATIONS: Final = ("at least", "less than")
SENTENCES: Final = (
    "Dr. Smith paid 3.50 dollars for tea.",
    "The river rose in spring, and nobody minded.",
    "Is that so?",
    "We met at 9 a.m. near St. Mary's church!",
    "NASA sent a letter to the U.S. office.",
    "It wasn't HIS idea, they'd say...",
    "She said: 'Don't go there.'",
    "Prices fell by 12 %; sales did not.",
    "Mr. and Mrs. Jones, i.e. the owners, left e.g. on Monday.",
    "Can cannot be split? Gimme a REASON.",
    "The cat sat on the mat",
    "A well-known RE-ENTRY problem (see p. 4) remains.",
)
LANGUAGES: Final = {
    "de": "Der Herbst war in diesem Jahr ungewöhnlich warm, und die Blätter fielen spät von den Bäumen.",
    "fr": "La maison au bord de la rivière était vide depuis longtemps, et personne ne voulait y entrer.",
    "es": "El viejo puente cruzaba el río desde hace siglos y nadie recordaba quién lo había construido.",
    "ru": "Старый дом стоял возле самой реки, и зимой там никто не жил.",
    "ja": "川のそばに古い家がありました。冬には誰も住んでいませんでした。",
    "en": "The old bridge had crossed the river for centuries and nobody remembered who had built it.",
}
WORDS: Final = ("river", "tea", "spring", "letter", "bridge", "owner", "C++", "Monday", "zebra")
ENDS: Final = ("Is there anything else I can help with?", "Any other questions?", "That is all.")
LOUD: Final = ("LOUD", "HELLO-WORLD", "DON'T", "A")
MARKED: Final = ("*a*", "**b**", "** **")
TWICE: Final = ("{a}\n******\n{b}", "{a}******{a}", "******{a}******{b}", "{a}***{b}")
OPENINGS: Final = ("Say this first: the", "Repeat me, please", "Write about tea")


@dataclass(frozen=True, slots=True)
class Kind:
    """How arguments of one kind are drawn, and how a text is made to follow them."""

    arguments: Arguments
    follow: Follow


def _none(_: Random) -> dict[str, Any]:
    return {}


def _counted(name: str, most: int, relation: str = "relation") -> Arguments:
    def draw(source: Random) -> dict[str, Any]:
        return {name: source.randint(1, most), relation: source.choice(RELATIONS)}

    return draw


def _sections(text: str, given: dict[str, Any], _: Random) -> str:
    word = given["section_spliter"]
    return "\n".join(f"{word} {place + 1}\n{text}" for place in range(given["num_sections"]))


def _paragraph(text: str, given: dict[str, Any], source: Random) -> str:
    parts = [source.choice(SENTENCES) for _ in range(given["num_paragraphs"])]
    parts[min(given["nth_paragraph"], len(parts)) - 1] = f"{given['first_word']}, {text}"
    return "\n\n".join(parts)


def _case(change: Callable[[str], str]) -> Follow:
    return lambda _text, _given, source: change(" ".join(source.sample(SENTENCES, 3)))


KINDS: Final[Mapping[str, Kind]] = {
    "keywords:existence": Kind(
        lambda s: {"keywords": s.sample(WORDS, 2)}, lambda t, g, _: f"{t} {' '.join(g['keywords'])}"
    ),
    "keywords:frequency": Kind(
        lambda s: {"keyword": s.choice(WORDS), "frequency": s.randint(1, 3), "relation": s.choice(RELATIONS)},
        lambda t, g, s: f"{t} {' '.join([g['keyword']] * s.randint(1, 4))}",
    ),
    "keywords:forbidden_words": Kind(
        lambda s: {"forbidden_words": s.sample(WORDS, 2)}, lambda _, _g, s: s.choice(SENTENCES)
    ),
    "keywords:letter_frequency": Kind(
        lambda s: {
            "letter": s.choice("aeiotzq"),
            "let_frequency": s.randint(1, 12),
            "let_relation": s.choice(RELATIONS),
        },
        lambda t, g, s: t + g["letter"] * s.randint(0, 12),
    ),
    "language:response_language": Kind(
        lambda s: {"language": s.choice(sorted(LANGUAGES))}, lambda _, g, _s: LANGUAGES[g["language"]]
    ),
    "length_constraints:number_sentences": Kind(_counted("num_sentences", 6), lambda t, *_: t),
    "length_constraints:number_paragraphs": Kind(
        lambda s: {"num_paragraphs": s.randint(1, 4)},
        lambda t, g, s: s.choice(["\n***\n", " *** ", "\n***\n***\n"]).join([t] * g["num_paragraphs"]),
    ),
    "length_constraints:number_words": Kind(_counted("num_words", 40), lambda t, *_: t),
    "length_constraints:nth_paragraph_first_word": Kind(
        lambda s: {
            "num_paragraphs": (most := s.randint(1, 3)),
            "nth_paragraph": s.randint(1, most),
            "first_word": s.choice(["weekend", "river", "Tea"]),
        },
        _paragraph,
    ),
    "detectable_content:number_placeholders": Kind(
        lambda s: {"num_placeholders": s.randint(1, 4)},
        lambda t, g, s: t + "".join(f" [slot {n}]" for n in range(g["num_placeholders"] + s.randint(-1, 1))),
    ),
    "detectable_content:postscript": Kind(
        lambda s: {"postscript_marker": s.choice(["P.S.", "P.P.S"])},
        lambda t, g, s: f"{t}\n{s.choice([g['postscript_marker'], 'P. S.', 'p.p.s.', 'PS'])} one more thing",
    ),
    "detectable_format:number_bullet_lists": Kind(
        lambda s: {"num_bullets": s.randint(1, 4)},
        lambda t, g, s: "\n".join([t, *(s.choice(["* a", "- a", " * a"]) for _ in range(g["num_bullets"]))]),
    ),
    "detectable_format:constrained_response": Kind(
        _none, lambda t, _, s: s.choice(["My answer is yes.", "My answer is No.", f"{t} My answer is maybe."])
    ),
    "detectable_format:number_highlighted_sections": Kind(
        lambda s: {"num_highlights": s.randint(1, 4)},
        lambda t, g, s: " ".join([t, *(s.choice(MARKED) for _ in range(g["num_highlights"]))]),
    ),
    "detectable_format:multiple_sections": Kind(
        lambda s: {"section_spliter": s.choice(["Section", "Day"]), "num_sections": s.randint(1, 4)},
        _sections,
    ),
    "detectable_format:json_format": Kind(
        _none,
        lambda t, _, s: s.choice(["{}", "```json\n{}\n```", "```\n{}\n```", "{}}}"]).replace(
            "{}", json.dumps({"text": t}), 1
        ),
    ),
    "detectable_format:title": Kind(
        _none, lambda t, _, s: f"{s.choice(['<<a title>>', '<< >>', '<<<<x>>', '<<a', '<<1>> <<2>>'])}\n{t}"
    ),
    "combination:two_responses": Kind(
        _none,
        lambda t, _, s: s.choice(TWICE).format(a=t, b=s.choice(SENTENCES)),
    ),
    "combination:repeat_prompt": Kind(
        lambda s: {"prompt_to_repeat": s.choice(OPENINGS)},
        lambda t, g, _s: f"{g['prompt_to_repeat'].upper()} {t}",
    ),
    "startend:end_checker": Kind(
        lambda s: {"end_phrase": s.choice(ENDS)},
        lambda t, g, s: f"{t} {g['end_phrase']}{s.choice(['', ' ', '.'])}",
    ),
    "startend:quotation": Kind(_none, lambda t, _, s: s.choice(['"{}"', ' "{}"', '"{}', '"']).format(t)),
    "change_case:capital_word_frequency": Kind(
        _counted("capital_frequency", 5, "capital_relation"),
        lambda t, _g, s: " ".join([t, *LOUD[: s.randint(0, 4)]]),
    ),
    "change_case:english_capital": Kind(_none, _case(str.upper)),
    "change_case:english_lowercase": Kind(_none, _case(str.lower)),
    "punctuation:no_comma": Kind(_none, lambda t, *_: t.replace(",", "")),
}  # fmt: skip


def generated(count: int, *, seed: int) -> list[tuple[Problem, str]]:
    """So many problems with one to three instructions and a reply each; every kind comes equally often."""
    source = Random(seed)
    names = sorted(KINDS)
    return [_one(place, names[place % len(names)], source) for place in range(count)]


def _one(place: int, first: str, source: Random) -> tuple[Problem, str]:
    kinds = [first, *source.sample([k for k in KINDS if k != first], source.choice([0, 0, 1, 2]))]
    drawn = [(kind, KINDS[kind].arguments(source)) for kind in kinds]
    text = " ".join(source.choices(SENTENCES, k=source.randint(1, 5)))
    if source.random() < 0.1:
        text = source.choice([*LANGUAGES.values(), "1234 5678.", "line one\nline two\nline three"])
    for kind, arguments in drawn:
        if source.random() < 0.7:
            text = KINDS[kind].follow(text, arguments, source)
    problem = Problem(
        f"crosscheck/{place}", place, "a prompt", tuple(Instruction(kind, given) for kind, given in drawn)
    )
    return problem, text.strip("\n")
