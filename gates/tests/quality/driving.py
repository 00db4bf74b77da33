"""Drives the quality gate against servers of this process and judges what came of it; for the test files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from gates import profile, registry
from gates.errors import DriveStopped
from gates.harness import history, room
from gates.harness.baseline import Baseline
from gates.harness.client import Client
from gates.harness.history import Event, History
from gates.harness.launch import Attached
from gates.harness.rig import Rig
from gates.harness.verdict import Judgement, Verdict, spec_of
from gates.profile import Settings, Value
from gates.quality import items
from gates.quality.items import ItemRecord
from gates.tests.driving import Counted, hasty
from gates.tests.reader import Backend, ReaderServer

SEED: Final = 7
SETS: Final = ("mini_arithmetic", "mini_two_steps", "mini_choice", "mini_format")
COUNT: Final = 6  # items of each set and arm


def settings(**changes: Value) -> Settings:
    """The quality table of `ci` for a few items of the sets that need no sandbox."""
    few: dict[str, Value] = {
        "sets": list(SETS),
        "fast_margins": [0.9] * len(SETS),
        "thinking_margins": [0.9] * len(SETS),
        "fast_items": [COUNT] * len(SETS),
        "thinking_items": [COUNT] * len(SETS),
        "fast_min_scores": [0.6] * len(SETS),
        "thinking_min_scores": [0.6] * len(SETS),
        "fast_mean_tokens": [10, 17, 1, 0],
        "thinking_mean_tokens": [10, 17, 0, 0],
        "twice_items": 1,
        "honesty_items": 4,
        "quiet_host_ratio": 1.0,
    }
    return Settings("quality", {**profile.load("ci").table("quality").values, **few, **changes})


@contextmanager
def rig_of(
    folder: Path, backends: Sequence[Backend], *, control: Backend | None = None, before: Sequence[Event] = ()
) -> Iterator[Rig]:
    """A rig before these servers of this process, the first one judged, the others its shards."""
    with ExitStack() as stack:
        record = stack.enter_context(History(folder / "history.jsonl", before=before))

        def one(backend: Backend, called: str = "the server under test") -> Rig:
            server = stack.enter_context(ReaderServer(backend))
            client = stack.enter_context(Client(server.base_url, deadline_s=20.0))
            alive = Attached(server.base_url).alive
            return Rig(
                client,
                record,
                Counted(),
                alive,
                data=None,
                context_tokens=4096,
                called=called,
                before=before,
                pause=hasty,
            )

        first, *others = map(one, backends)
        yield replace(first, shards=tuple(others), control=one(control, "the control") if control else None)


def driven(
    folder: Path,
    table: Settings,
    *backends: Backend,
    control: Backend | None = None,
    before: Sequence[Event] = (),
    baseline: Sequence[ItemRecord] = (),
) -> list[ItemRecord]:
    """Plan and drive; the records that this left in the folder."""
    gate = room.load(registry.find("quality"))
    with rig_of(folder, backends, control=control, before=before) as rig:
        rig.baseline = held_against(baseline)
        rig.history.note(room.STARTED)
        try:
            gate.drive(gate.plan(table, seed=SEED), rig)
            rig.history.note(room.FINISHED)
        except DriveStopped:
            pass
    return items.read(folder / "items.jsonl")


def judged(folder: Path, table: Settings, *, baseline: Sequence[ItemRecord] = ()) -> Judgement:
    """What the check says of the record in the folder."""
    events = [*history.read(folder / "history.jsonl"), *history.items(folder / "items.jsonl")]
    return room.judge(room.load(registry.find("quality")), events, table, held_against(baseline))


def held_against(records: Sequence[ItemRecord]) -> Baseline | None:
    """A baseline of these records; none without any."""
    return Baseline({}, {items.GATE: [items.as_json(record) for record in records]}) if records else None


def verdicts(judgement: Judgement) -> Mapping[str, Verdict]:
    """The verdict on every claim that counts."""
    return {m.id: m.verdict for m in judgement.measures if not spec_of(m.id).notice}


def broken(judgement: Judgement) -> set[str]:
    """The claims that do not hold."""
    return {name for name, verdict in verdicts(judgement).items() if verdict is Verdict.FAIL}
