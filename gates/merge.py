"""Joins the records of several runs of one plan, so that they are judged as one.

Each run holds a part of the items, asked of its own server or at its own time. The joined record is a run
folder like any other: it can be judged again, reported and promoted. Knows the form of histories and item
files, and nothing of what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gates.errors import UsageError
from gates.harness import history, record, room
from gates.harness.history import Event
from gates.harness.record import RunFolder, State, write_whole

# What runs must have in common to be parts of one, by the words for it.
SAME: Final = {
    "profile": "profile_sha256",
    "settings": "settings",
    "gates": "chosen",
    "seed": "seed",
    "model": "model",
    "tree": "tree",
    "server": "server",
}


def merge(folders: Sequence[RunFolder], root: Path) -> RunFolder:
    """A new run folder below root with the records of all; UsageError when they are no parts of one plan."""
    runs = [folder.read_run() for folder in folders]
    _check(folders, runs)
    first = runs[0]
    joined = record.create(root, profile=first["profile"], commit=str(first["tree"]["commit"] or "none")[:7])
    for gate in first["chosen"]:
        _join_histories(folders, joined, gate)
        _join_items(folders, joined, gate)
    if folders[0].baseline_json.is_file():
        write_whole(joined.baseline_json, folders[0].baseline_json.read_text(encoding="utf-8"))
    joined.write_run(_joined(folders, runs))
    return joined


def _check(folders: Sequence[RunFolder], runs: Sequence[dict[str, Any]]) -> None:
    names = [folder.path.name for folder in folders]
    for folder in folders:
        if folder.going_on:
            raise UsageError(f"run {folder.path.name} is going on: join it with the others when it has ended")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{', '.join(twice)} is named twice: name each part once")
    for name, run in zip(names, runs, strict=True):
        other = [word for word, key in SAME.items() if run[key] != runs[0][key]]
        if other:
            raise UsageError(
                f"{names[0]} and {name} are no parts of one run: they differ in {', '.join(other)}"
            )
    kept = {folder.baseline_json.read_bytes() for folder in folders if folder.baseline_json.is_file()}
    if len(kept) > 1 or (kept and not all(folder.baseline_json.is_file() for folder in folders)):
        raise UsageError("these runs are held against different baselines: judge each by itself")


def _joined(folders: Sequence[RunFolder], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first run's record with the end of the last, the longest time, and everything left behind."""
    states = [State(run["state"]) for run in runs]
    worst = next((state for state in states if state != State.FINISHED), State.FINISHED)
    left = [run["leftover"] for run in runs]
    ends = [run["finished_utc"] for run in runs if "finished_utc" in run]  # one that was killed has none
    return {
        **{name: value for name, value in runs[0].items() if name != "schema"},
        "state": worst,
        "part": [1, 1],
        "error": "; ".join(run["error"] for run in runs if run.get("error")),
        "started_utc": min(run["started_utc"] for run in runs),
        **({"finished_utc": max(ends)} if ends else {}),
        "seconds": max(run.get("seconds", 0.0) for run in runs),
        "leftover": None if None in left else [line for lines in left for line in lines],
        "merged": [folder.path.name for folder in folders],
    }


def _join_histories(folders: Sequence[RunFolder], joined: RunFolder, gate: str) -> None:
    """All events with their own numbers, those of a part that did not finish last, for the end is judged."""
    parts = [history.read(folder.history(gate)) for folder in folders]
    parts.sort(key=lambda events: bool(room.unfinished(events)))
    if any(parts):
        lines = [json.dumps(line, ensure_ascii=False) for line in _renumbered(parts)]
        write_whole(joined.history(gate), "".join(f"{line}\n" for line in lines))


def _renumbered(parts: Sequence[Sequence[Event]]) -> Iterator[dict[str, Any]]:
    taken = 0
    for events in parts:
        for event in events:
            op = event.op + taken if event.op >= 0 else event.op
            head = {"op": op, "t_s": event.t_s, "kind": event.kind, "client": event.client}
            yield {**head, "what": event.what, **event.fields}
        taken += 1 + max((event.op for event in events), default=-1)


def _join_items(folders: Sequence[RunFolder], joined: RunFolder, gate: str) -> None:
    """All items once, in an order that no part decides."""
    rows = (event.fields for folder in folders for event in history.items(folder.items(gate)))
    lines = sorted({json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows})
    if lines:
        write_whole(joined.items(gate), "".join(f"{line}\n" for line in lines))
