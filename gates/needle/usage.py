"""Are the token counts of a server honest?  Compares `usage` with the texts, with itself, and over two turns.

A doubt is a reply whose counts cannot be true, and why.
A tokenizer is not needed: tokens grow with the pieces of a text at one rate, a second turn contains the first
reply, and no fragment or token id can come without a token.
Knows the fields of a needle history, no limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from gates.harness import counts
from gates.harness.history import Operation
from gates.needle.sizing import pieces

MEASURED: Final = ("recall", "order", "absent", "followup")
LONG: Final = "continuation"  # the cell of the long reply
LONG_BAND: Final = 0.03  # a generated text may be written with other tokens than it was sampled with
LONG_SLACK: Final = 3  # keys of one to three tokens
RATE_BAND: Final = 0.12  # novel texts differ by 5 % in tokens per piece, generated ones by 1 %
OVERHEAD_TOKENS: Final = 24  # role markers and thinking marks of a turn, in any template
REPLY_LEAST, REPLY_MOST = 0.5, 2.5  # tokens per piece of a short reply, against the rate of the prompts


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reply whose counts cannot be true."""

    cell: str
    what: str
    why: str


def doubts(operations: Sequence[Operation]) -> list[Doubt]:
    """Every answered request whose counts contradict its texts, themselves or the turn before."""
    answered = [operation for operation in operations if operation.outcome == "ok"]
    rate = _rate(answered)
    growths = _growths(answered)
    short = [growth.tokens for growth in growths if growth.operation.invoke.what == "followup"]
    usual = median(short) if short else None
    found: list[Doubt] = []
    for operation in answered:
        growth = next((g for g in growths if g.operation is operation), None)
        why = (
            counts.fault(operation)
            or _rates(operation, rate)
            or (_grown(growth, rate, usual) if growth else "")
        )
        if why:
            found.append(Doubt(str(operation.get("cell", "probe")), operation.invoke.what, why))
    return found


def _rate(answered: Sequence[Operation]) -> float | None:
    """Tokens per piece of the long prompts: the median, so that a few lies do not move it."""
    rates = [
        operation.get("prompt_tokens") / operation.get("pieces")
        for operation in answered
        if operation.invoke.what in MEASURED and counts.is_count(operation.get("prompt_tokens"))
    ]
    return median(rates) if rates else None


def _rates(operation: Operation, rate: float | None) -> str:
    """Faults against the rate of tokens per piece."""
    if rate is None or operation.invoke.what not in MEASURED:
        return ""
    prompt, size = operation.get("prompt_tokens"), operation.get("pieces")
    if abs(prompt / (rate * size) - 1) > RATE_BAND:
        return f"prompt_tokens is {prompt} for {size} words and marks; others have {rate:.2f} tokens for each"
    said = pieces(operation.get("text", "")) + pieces(operation.get("reasoning") or "")
    completion = operation.get("completion_tokens")
    low, high = REPLY_LEAST * rate * said - 3, REPLY_MOST * rate * said + 8
    if operation.get("finish_reason") == "stop" and not low <= completion <= high:
        return f"completion_tokens is {completion} for a reply of {said} words and marks"
    return ""


@dataclass(frozen=True, slots=True)
class _Growth:
    """By how much a prompt is longer than the one before and its reply together: one question."""

    operation: Operation
    cell: str
    tokens: int
    said_tokens: int


def _growths(answered: Sequence[Operation]) -> list[_Growth]:
    turns = {_place(operation): operation for operation in answered if operation.get("turn")}
    found: list[_Growth] = []
    for (cell, attempt, number), operation in turns.items():
        before = turns.get((cell, attempt, number - 1))
        prompt = before.get("prompt_tokens") if before else None
        if before is None or not (
            counts.is_count(prompt) and counts.is_count(operation.get("prompt_tokens"))
        ):
            continue
        said = before.get("completion_tokens") or 0
        found.append(_Growth(operation, cell, operation.get("prompt_tokens") - prompt - said, said))
    return found


def _place(operation: Operation) -> tuple[str, Any, int]:
    """Which turn of which conversation a request was."""
    return str(operation.get("cell")), operation.get("attempt"), int(operation.get("turn"))


def _grown(growth: _Growth, rate: float | None, usual: float | None) -> str:
    """Faults between two turns: a prompt is the one before, its reply, and one question."""
    asked = growth.operation.get("question_pieces")
    if rate is not None and not 0.6 * rate * asked <= growth.tokens <= 2.5 * rate * asked + OVERHEAD_TOKENS:
        return (
            f"prompt_tokens grew by {growth.tokens} more than the {growth.said_tokens} tokens of the reply;"
            f" the question has {asked} words and marks"
        )
    if usual is None or growth.cell != LONG:
        return ""
    if abs(growth.tokens - usual) > LONG_SLACK + LONG_BAND * growth.said_tokens:
        return (
            f"after a reply of {growth.said_tokens} tokens prompt_tokens grew by {growth.tokens} more,"
            f" after short replies by {usual:g}: prompt and completion are not counted alike"
        )
    return ""
