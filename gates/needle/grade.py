"""Right or wrong for one reply: pure, and by whole values, never by wording.

A code counts when it stands alone in the answer: not inside a longer number, thousands separators or not.
Knows nothing of histories, measures and servers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_GAP: Final = r"[,.'\u2019\u00a0\u2009\u202f ]?"
_BEFORE: Final = r"(?<!\w)(?<!\d[.,/:\-\u2013'\u2019\u00a0\u2009\u202f])"
_AFTER: Final = r"(?!\w)(?![.,/:\-\u2013'\u2019\u00a0\u2009\u202f]\d)"
_NUMBER: Final = re.compile(rf"\d(?:{_GAP}\d){{3,}}")
_CLOSED_THOUGHT: Final = "</think>"
_OPEN_THOUGHT: Final = "<think>"
_DENIAL: Final = re.compile(
    r"\b(?:not|no|none|never|nothing|nowhere|without|cannot|absent|missing|unable|unknown|neither)\b|n['\u2019]t\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Grade:
    """Whether a reply is right, and in words why not; `foreign` are codes in it that were not asked for."""

    right: bool
    found: str
    foreign: tuple[str, ...] = ()


def visible(text: str) -> str:
    """The part of a reply that is graded: nothing of its thoughts."""
    if _CLOSED_THOUGHT in text:
        return text.rsplit(_CLOSED_THOUGHT, 1)[1]
    return text.split(_OPEN_THOUGHT, 1)[0]


def place(code: str, text: str) -> int | None:
    """Where the code first stands alone in the text; None when it does not."""
    digits = code[0] + "".join(
        (_GAP if (len(code) - n) % 3 == 0 else "") + digit for n, digit in enumerate(code) if n
    )
    found = re.search(_BEFORE + digits + _AFTER, text)
    return found.start() if found else None


def grade_codes(text: str, expected: Sequence[str], others: Sequence[str]) -> Grade:
    """A reply that must name the expected codes in their order, and none of the others."""
    answer = visible(text)
    foreign = tuple(code for code in others if place(code, answer) is not None)
    places = [place(code, answer) for code in expected]
    missing = [code for code, where in zip(expected, places, strict=True) if where is None]
    if not answer.strip():
        return Grade(False, "an empty answer")
    if foreign:
        return Grade(False, f"the code of a key that was not asked for: {', '.join(foreign)}", foreign)
    if missing:
        return Grade(False, f"an answer without {', '.join(missing)}")
    known = [where for where in places if where is not None]
    if known != sorted(known):
        return Grade(False, "all codes, but in another order")
    return Grade(True, "as asked")


def grade_absent(text: str, others: Sequence[str]) -> Grade:
    """A reply that must say that there is no such code, and give no value."""
    answer = visible(text)
    foreign = tuple(code for code in others if place(code, answer) is not None)
    value = _NUMBER.search(answer)
    if not answer.strip():
        return Grade(False, "an empty answer")
    if value or foreign:
        found = ", ".join(foreign) if foreign else value[0] if value else ""
        return Grade(False, f"a value for a code that is not in the text: {found}", foreign)
    if not _DENIAL.search(answer):
        return Grade(False, "an answer that neither gives a value nor says that there is none")
    return Grade(True, "said to be absent")
