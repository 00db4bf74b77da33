"""From what became of a request to the record of its item.

Owns which outcome an answer is; pure, but for programs, whose grades come from the sandbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.quality.asking import Question
from gates.quality.grading import Grade, graded_text, seen_text
from gates.quality.items import ItemRecord, Outcome, ServerRole
from gates.quality.plan import Part
from gates.quality.sandbox import Program
from gates.quality.sets import Item

Key = tuple[str, str, str, int, str]

CHARACTERS_A_TOKEN: Final = 128  # the longest tokens of known vocabularies are rows of so many blanks
BUSY: Final = frozenset({429, 502, 503, 504})  # states of a moment, of a server or of what stands before it


@dataclass(frozen=True, slots=True)
class Ask:
    """One item, in one arm, once, of one server."""

    part: Part
    item: Item
    repeat: int
    role: ServerRole

    @property
    def key(self) -> Key:
        """What tells this from every other ask of a run, as `ItemRecord.key` does."""
        return self.part.set, self.part.arm, self.question.id, self.repeat, self.role

    @property
    def question(self) -> Question:
        """The question with the limit of its arm: that of the set itself does not know of reasoning."""
        limit = self.part.max_tokens
        own = self.item.question
        return Question(
            own.id, own.prompt, limit if self.part.arm == "thinking" else min(limit, own.max_tokens)
        )

    def fields(self) -> dict[str, Any]:
        """What the history keeps of it."""
        return {
            "set": self.part.set,
            "arm": self.part.arm,
            "item": self.question.id,
            "repeat": self.repeat,
            "server": self.role,
            "prompt_sha256": hashlib.sha256(self.question.prompt.encode("utf-8")).hexdigest(),
            "max_tokens": self.question.max_tokens,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an ask: the fields of its reply, or the error; and how many tries were in vain."""

    reply: Mapping[str, Any] | None
    error: str = ""
    refused: bool = False
    retries: int = 0


def grade(ask: Ask, answer: Answer) -> Grade | Program:
    """The grade of an answer, or the program that has still to be run; an error is never graded."""
    if answer.reply is None:
        return Grade("infra", note=answer.error)
    return ask.item.grade(seen_text(str(answer.reply["text"])))


def record(ask: Ask, answer: Answer, graded: Grade, *, grader_version: str) -> ItemRecord:
    """The record of an item."""
    reply = answer.reply or {}
    text = str(reply.get("text", ""))
    return ItemRecord(
        set=ask.part.set,
        arm=ask.part.arm,
        item=ask.question.id,
        category=ask.item.category,
        cluster=ask.item.cluster,
        repeat=ask.repeat,
        server=ask.role,
        prompt_sha256=ask.fields()["prompt_sha256"],
        text=text,
        reasoning_length=len(str(reply.get("reasoning") or "")) + len(text) - len(graded_text(text)),
        token_ids=tuple(reply.get("token_ids") or ()),
        extracted=graded.extracted,
        state=graded.state,
        note="; ".join(part for part in (graded.note, ask.item.fault) if part),
        score=None if graded.right is None else float(graded.right),
        correct=graded.right,
        outcome=outcome(answer, max_tokens=ask.question.max_tokens),
        finish_reason=str(reply.get("finish_reason", "")),
        prompt_tokens=reply.get("prompt_tokens"),
        completion_tokens=reply.get("completion_tokens"),
        cached_tokens=reply.get("cached_tokens"),
        ttft_s=reply.get("first_token_s"),
        seconds=reply.get("seconds"),
        retries=answer.retries,
        grader_version=grader_version,
    )


def outcome(answer: Answer, *, max_tokens: int) -> Outcome:
    """How an ask ended; a reply that used up its tokens is cut, whatever its server calls that."""
    if answer.reply is None:
        return "refused" if answer.refused else "fault"
    reason, used = answer.reply.get("finish_reason"), answer.reply.get("completion_tokens")
    if reason == "content_filter":
        return "refused"
    if reason == "length" or (used is not None and used >= max_tokens):
        return "truncated"
    return "answered" if seen_text(str(answer.reply["text"])) else "empty"


def believed(ask: Ask, answer: Answer) -> Answer:
    """The answer, or an error for a reply with more characters than its tokens can have.

    Graders read what models write; what no model can have written would keep them busy for hours.
    """
    most = CHARACTERS_A_TOKEN * ask.question.max_tokens
    size = len(str(answer.reply["text"])) if answer.reply else 0
    if size <= most:
        return answer
    why = f"Malformed: the reply has {size} characters; {ask.question.max_tokens} tokens have {most} at most"
    return Answer(None, why, retries=answer.retries)
