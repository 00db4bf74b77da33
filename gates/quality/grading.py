"""What every set shares: the part of a reply that is graded, the state an item ends in, what spoils a run.

    pass | fail          graded
    unparsed             the text holds no answer; counts as wrong, and is counted by itself
    timeout              a program did not end in time, twice; counts as wrong
    syntax | no_code     no program could be built from the text; counts as wrong
    infra                no usable reply: never graded, in no pair

Knows no set; every function is pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gates.harness.reply import ClientError, Reply

State = Literal["pass", "fail", "unparsed", "timeout", "syntax", "no_code", "infra"]

_BLANK: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols by name that are drawn as nothing
_OPEN_THOUGHT: Final = "<think>"
_CLOSED_THOUGHT: Final = "</think>"


@dataclass(frozen=True, slots=True)
class Grade:
    """How one item ended: its state, what was read from the text, and in words why."""

    state: State
    extracted: str = ""
    note: str = ""

    @property
    def right(self) -> bool | None:
        """True or False for a graded item; None where there was nothing to grade."""
        return None if self.state == "infra" else self.state == "pass"


@dataclass(frozen=True, slots=True)
class Graded:
    """One item with its grade and whether its reply was cut by the token limit."""

    item: str
    grade: Grade
    truncated: bool = False


def graded_text(content: str) -> str:
    """The part of the content that is graded: nothing of its thoughts, and nothing of an unclosed one."""
    if _CLOSED_THOUGHT in content:
        content = content.rsplit(_CLOSED_THOUGHT, 1)[1]
    return content.split(_OPEN_THOUGHT, 1)[0]


def seen_text(content: str) -> str:
    """The graded part of the content; empty where nothing of it can be seen, whatever it is made of."""
    text = graded_text(content)
    return text if any(map(_shows, text)) else ""


def _shows(character: str) -> bool:
    """Whether a character leaves a mark: no space, no control or format character, no mark of another."""
    return unicodedata.category(character)[0] not in "CMZ" and character not in _BLANK


def grade_outcome(item: str, outcome: Reply | ClientError, grade: Callable[[str], Grade]) -> Graded:
    """The grade of one request's outcome; an error is never graded, whatever its text says."""
    if isinstance(outcome, ClientError):
        return Graded(item, Grade("infra", note=f"{type(outcome).__name__}: {outcome}"))
    return Graded(item, grade(seen_text(outcome.text)), outcome.finish_reason == "length")


def completion_tokens(reply: Reply) -> int | None:
    """How many tokens a reply has: by its usage, else by its token ids; None where neither says it.

    Never by its fragments, for one of them may be half a token or five.
    """
    if reply.usage.completion_tokens is not None:
        return reply.usage.completion_tokens
    return len(reply.token_ids) or None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The shares of items above which a run judges the network, or its own token limit, and not the model."""

    faults: float  # without a usable reply
    truncated: float


def spoiled(results: Sequence[Graded], bounds: Bounds) -> tuple[str, ...]:
    """Why this run cannot be judged, in words; empty when it can."""
    if not results:
        return ("no item was asked",)
    reasons = []
    lost = sum(result.grade.state == "infra" for result in results) / len(results)
    cut = sum(result.truncated for result in results) / len(results)
    if lost > bounds.faults:
        reasons.append(f"{lost:.1%} of the items have no usable reply; at most {bounds.faults:.1%} may")
    if cut > bounds.truncated:
        reasons.append(
            f"{cut:.1%} of the replies were cut by the token limit; at most {bounds.truncated:.1%} may"
        )
    return tuple(reasons)
