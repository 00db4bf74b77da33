"""Run folders made without a server, for tests of what follows from a record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gates import conduct, outcome
from gates.harness import record, room
from gates.harness.history import History
from gates.harness.record import RunFolder
from gates.profile import Profile

HOST = {
    "system": "Linux",
    "release": "6.1",
    "machine": "x86_64",
    "python": "3.12.1",
    "processor": "a processor",
    "cpus": 2,
    "memory_gib": 8.0,
    "load_1min": 0.1,
}


def run_record(profile: Profile, **changes: Any) -> dict[str, Any]:
    """The record of a finished run of the echo gate; changes replace its parts."""
    return {
        "state": "finished",
        "profile": profile.name,
        "profile_sha256": profile.sha256,
        "settings": {name: dict(table) for name, table in profile.tables.items()},
        "chosen": ["echo"],
        "seed": 7,
        "seed_of_profile": True,
        "part": [1, 1],
        "own_server": True,
        "started_utc": "2026-11-30T09:00:00+00:00",
        "finished_utc": "2026-11-30T09:00:05+00:00",
        "seconds": 5.0,
        "resumed_utc": [],
        "control": None,
        "tree": {"commit": "c" * 40, "tree": "t" * 40, "dirty": False},
        "model": {"file": "model.gguf", "bytes": 11, "sha256": "m" * 64},
        "server": {"launched": True, "command": ["python"], "endpoints": 1},
        "served_models": ["fake"],
        "host": HOST,
        "leftover": [],
        **changes,
    }


def write_history(path: Path, *, right: int = 4, wrong: int = 0, text: str = "something else") -> None:
    """A history of the echo gate with so many right and wrong answers."""
    ticks = iter(range(1000))
    with History(path, clock=lambda: float(next(ticks))) as events:
        events.note(room.STARTED, unix_s=1796029200.0, seed=1)
        for number in range(right + wrong):
            word = f"word{number}"
            op = events.invoke("echo", word=word)
            events.ok(op, "echo", text=f"You said {word}" if number < right else text)
        events.note(room.FINISHED)


def make_run(
    runs: Path,
    profile: Profile,
    *,
    second: int = 0,
    right: int = 4,
    wrong: int = 0,
    text: str = "else",
    **changes: Any,
) -> RunFolder:
    """A judged run folder, made in the given second of the day."""
    now = datetime(2026, 11, 30, 9, 0, second, tzinfo=UTC)
    folder = record.create(runs, profile=profile.name, commit="ccccccc", now=now)
    folder.write_run(run_record(profile, **changes))
    write_history(folder.history("echo"), right=right, wrong=wrong, text=text)
    outcome.write(folder, conduct.judge_run(folder, profile))
    return folder


def measures(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The measures of a verdict record by id."""
    return {measure["id"]: measure for gate in content["gates"] for measure in gate["measures"]}
