"""A storm at the memory ceiling: many requests at once that each ask to be promised a long answer.

A full server may refuse at once, with 503, `Retry-After` and words that say what is held, or let idle
conversations yield and answer.  Owns the storm and what a right outcome is; knows no gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.harness import crowd
from gates.harness.client import Message
from gates.harness.history import Event, Operation, notes
from gates.harness.reply import NOTHING, ClientError, Refused, Reply
from gates.harness.rig import Rig

STORM: Final = "storm"  # the kind of its requests
BEGAN, ENDED = "storm_began", "storm_ended"  # remarks in the history
FULL: Final = 503
LONGEST_WAIT_S: Final = 5.0  # before the next try, whatever the server asks for
AFTER_S: Final = 10.0  # how long after a storm its requests may still hold what they were promised
LEAST_WORDS: Final = 4  # of a refusal that says what is held


@dataclass(frozen=True, slots=True)
class Wave:
    """One request of a storm: what is asked, and what the history keeps of it."""

    messages: Sequence[Message]
    fields: Mapping[str, Any]


def storm(
    rig: Rig, waves: Sequence[Wave], *, max_tokens: int, deadline_s: float, extra: Mapping[str, Any] = NOTHING
) -> None:
    """Send all of them at once and wait until each has an outcome; raises what `Rig.attempt` raises."""
    rig.history.note(BEGAN, requests=len(waves))
    desks = [replace(rig, lost_in_a_row=0) for _ in waves]

    def send(wave: Wave, desk: Rig) -> None:
        desk.attempt(
            STORM,
            wave.messages,
            fields={**wave.fields, "max_tokens": max_tokens},
            max_tokens=max_tokens,
            deadline_s=deadline_s,
            extra=extra,
        )

    try:
        crowd.share(waves, desks, send)
    finally:
        rig.history.note(ENDED)


def refused(operation: Operation) -> bool:
    """Whether a request was turned away as it should be at the ceiling."""
    return (
        operation.outcome == "fail"
        and operation.get("status") == FULL
        and (operation.get("retry_after_s") or 0) > 0
        and len(str(operation.get("message")).split()) >= LEAST_WORDS
    )


def wrong(operation: Operation) -> str:
    """What is wrong with the outcome of a request at the ceiling; empty when nothing is."""
    if refused(operation):
        return ""
    if operation.outcome == "ok":
        return "" if str(operation.get("text") or "").strip() else "HTTP 200 with an empty answer"
    if operation.outcome == "fail" and operation.get("status") == FULL:
        wait = operation.get("retry_after_s")
        return f"HTTP 503 with Retry-After {wait} and the message {operation.get('message')!r}"
    return f"{operation.get('error', 'no outcome')}: {operation.get('message', 'the record stops')}"


def spans(events: Sequence[Event]) -> list[tuple[float, float]]:
    """From when to when each storm lasted, in seconds of the history."""
    begins = [event.t_s for event in notes(events, BEGAN)]
    ends = [event.t_s for event in notes(events, ENDED)]
    return list(zip(begins, ends, strict=False))


def during(operation: Operation, storms: Sequence[tuple[float, float]], *, after_s: float = AFTER_S) -> bool:
    """Whether a request was open while a storm lasted, or began at most so long after it."""
    asked = operation.invoke.t_s
    ended = operation.end.t_s if operation.end else asked
    return any(asked <= end + after_s and ended >= begin for begin, end in storms)


def wait_s(error: ClientError) -> float:
    """How long a client waits that was told that the server is full; 0 for any other error."""
    if isinstance(error, Refused) and error.status == FULL:
        return min(error.retry_after_s or 1.0, LONGEST_WAIT_S)
    return 0.0


def patiently(
    rig: Rig,
    what: str,
    messages: Sequence[Message],
    *,
    fields: Mapping[str, Any],
    max_tokens: int,
    deadline_s: float,
    extra: Mapping[str, Any],
    tries: int,
) -> Reply | None:
    """Ask until there is a reply, as long as the server only says that it is full; each try is recorded."""
    for attempt in range(1, tries + 1):
        outcome = rig.attempt(
            what,
            messages,
            fields={**fields, "attempt": attempt, "max_tokens": max_tokens},
            max_tokens=max_tokens,
            deadline_s=deadline_s,
            extra=extra,
        )
        if isinstance(outcome, Reply):
            return outcome
        if not (pause_s := wait_s(outcome)) or attempt == tries:
            return None
        rig.pause(pause_s)
    return None
