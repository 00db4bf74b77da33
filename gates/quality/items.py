"""What is kept of one item that was asked: its reply, its grade, its counts and times, one JSON line each.

Owns the fields and the file form; a reader leaves out a last line that a kill tore.
Knows no set and no verdict.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from gates.errors import CheckError
from gates.harness import shape
from gates.harness.baseline import Baseline
from gates.quality.asking import Arm
from gates.quality.grading import Grade, State

Outcome = Literal["answered", "truncated", "refused", "empty", "fault"]
ServerRole = Literal["candidate", "baseline", "baseline_again"]

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
GATE: Final = "quality"
ROLES: Final[tuple[ServerRole, ...]] = get_args(ServerRole)


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """One item as it was asked of one server in one arm.

    `refused` is an error status or a reply that a filter ended, `fault` no usable reply after all retries.
    `score` and `correct` are None where there was nothing to grade; an empty or cut reply is graded.
    """

    set: str
    arm: Arm
    item: str  # such as gsm8k/17
    category: str  # for breakdowns: a subject, a kind
    cluster: str  # items of one cluster share a context; the item itself where none is shared
    repeat: int  # from 0
    server: ServerRole
    prompt_sha256: str
    text: str
    reasoning_length: int  # characters
    token_ids: tuple[int, ...]  # of the reply; empty where the server does not tell
    extracted: str
    state: State
    note: str
    score: float | None
    correct: bool | None
    outcome: Outcome
    finish_reason: str  # empty for a fault
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    ttft_s: float | None
    seconds: float | None
    retries: int  # tries before the one that counts; each is in the history
    grader_version: str

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What tells this record from any other of a run: set, arm, item, repeat, server."""
        return self.set, self.arm, self.item, self.repeat, self.server


_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(ItemRecord))


_SHAPE: Final = shape.fields(
    {
        **dict.fromkeys(("set", "item", "category", "cluster", "prompt_sha256"), shape.text),
        **dict.fromkeys(("text", "extracted", "note", "finish_reason", "grader_version"), shape.text),
        **dict.fromkeys(("repeat", "reasoning_length", "retries"), shape.whole),
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), shape.maybe(shape.whole)),
        **dict.fromkeys(("score", "ttft_s", "seconds"), shape.maybe(shape.number)),
        "correct": shape.maybe(shape.switch),
        "token_ids": shape.rows(shape.whole),
        "arm": shape.one_of(*get_args(Arm)),
        "server": shape.one_of(*ROLES),
        "state": shape.one_of(*get_args(State)),
        "outcome": shape.one_of(*OUTCOMES),
    }
)


def as_json(record: ItemRecord) -> dict[str, Any]:
    """The record as plain JSON values."""
    return {**dataclasses.asdict(record), "token_ids": list(record.token_ids)}


def from_json(values: Mapping[str, Any]) -> ItemRecord:
    """The record of these values; CheckError names what is missing, unknown or of no such kind."""
    missing, unknown = sorted(_FIELDS - values.keys()), sorted(values.keys() - _FIELDS)
    if missing or unknown:
        raise CheckError(f"not the record of an item: it lacks {missing} and has unknown {unknown}")
    fault = _SHAPE(dict(values), "item") or _contradiction(values)
    if fault:
        raise CheckError(f"not the record of an item: {fault}")
    return ItemRecord(**{**values, "token_ids": tuple(values["token_ids"])})


def _contradiction(values: Mapping[str, Any]) -> str:
    """In words that state, `correct` and score do not say the same; empty when they do."""
    right = Grade(values["state"]).right
    score = None if right is None else float(right)
    if (values["correct"], values["score"]) == (right, score):
        return ""
    said = f"correct {values['correct']} and score {values['score']}"
    return f"its state {values['state']} goes with correct {right} and score {score}, not with {said}"


class Writer:
    """Writes records behind those of a file, safe for several threads; a torn last line is cut off first."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = path.open("ab+")
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def add(self, record: ItemRecord) -> None:
        """Write one record; it is on disk when this returns."""
        line = json.dumps(as_json(record), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def append(path: Path, records: Iterable[ItemRecord]) -> None:
    """Write records behind those of a file."""
    with Writer(path) as writer:
        for record in records:
            writer.add(record)


def read(path: Path) -> list[ItemRecord]:
    """All whole records of a file; a torn last line is left out, any other bad line is a CheckError."""
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # what follows the last line break: empty, or a line that was never finished
    return [_parsed(path, number, line) for number, line in enumerate(lines, start=1)]


def kept(baseline: Baseline | None) -> list[ItemRecord]:
    """The records that a baseline holds; none without one."""
    return [from_json(row) for row in baseline.items.get(GATE, ())] if baseline else []


def merged(parts: Sequence[Iterable[ItemRecord]]) -> list[ItemRecord]:
    """The records of several runs of one plan as if one had made them, in an order that no part decides.

    CheckError where two parts hold the same item of the same server with another outcome.
    """
    found: dict[tuple[str, str, str, int, str], ItemRecord] = {}
    for record in (record for part in parts for record in part):
        before = found.setdefault(record.key, record)
        if before != record:
            raise CheckError(
                f"{record.item} ({record.arm}, {record.server}) stands in two records that differ"
            )
    return [found[key] for key in sorted(found)]


def _parsed(path: Path, number: int, line: bytes) -> ItemRecord:
    try:
        return from_json(json.loads(line))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckError(f"{path.name}, line {number}: not the record of an item ({error})") from error
    except CheckError as error:
        raise CheckError(f"{path.name}, line {number}: {error}") from error
