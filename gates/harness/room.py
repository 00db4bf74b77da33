"""The shape of a gate room: `plan` (seeded, pure), `drive` (traffic into a history), `check` (pure judge).

    plan(settings, *, seed)                   -> a frozen dataclass with `cells: int` and what is to be asked
    drive(plan, rig)                          -> None; every request goes through `rig.chat`
    check(events, settings, baseline)         -> Judgement with every measure of the registry

Owns how a room is found and how its check is guarded: an exception, a missing measure or an unfinished
history becomes unknown, never a pass. Knows no particular gate.
"""

from __future__ import annotations

import importlib
import math
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from gates.errors import CheckError, UsageError
from gates.harness.baseline import Baseline
from gates.harness.history import Event, notes
from gates.harness.rig import DIED, STUCK, Rig
from gates.harness.verdict import Judgement, Measure, Verdict, unmeasured
from gates.profile import Settings
from gates.spec import GateSpec

STARTED = "drive_started"
PLANNED = "plan"
FINISHED = "drive_finished"
BROKE = "drive_broke"
INTERRUPTED = "interrupted"


class Plan(Protocol):
    """What a room's plan at least tells: how many cells it will take."""

    @property
    def cells(self) -> int:
        """Cells, the unit of progress and of time left."""


class PlanFunction(Protocol):
    """Seeded and pure."""

    def __call__(self, settings: Settings, *, seed: int) -> Plan: ...


class DriveFunction(Protocol):
    """Puts the plan's traffic on the server and writes the history."""

    def __call__(self, plan: Any, rig: Rig) -> None: ...


class CheckFunction(Protocol):
    """Pure: history, thresholds and baseline to a judgement."""

    def __call__(
        self, events: Sequence[Event], settings: Settings, baseline: Baseline | None
    ) -> Judgement: ...


@dataclass(frozen=True, slots=True)
class Room:
    """The three functions of one gate."""

    spec: GateSpec
    plan: PlanFunction
    drive: DriveFunction
    check: CheckFunction


def load(spec: GateSpec) -> Room:
    """Import a gate's modules `plan`, `drive`, `check` and take the function of the same name from each."""
    if spec.room is None:
        raise UsageError(f"'{spec.name}' is measured by the harness itself and has no room")
    functions = [
        getattr(importlib.import_module(f"{spec.room}.{part}"), part) for part in ("plan", "drive", "check")
    ]
    return Room(spec, *functions)


def judge(room: Room, events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The check's judgement, guarded: what it cannot say is unknown; an unfinished history passes nothing."""
    try:
        said = room.check(events, settings, baseline)
    except CheckError as error:  # says itself what it cannot judge
        return Judgement(unmeasured(settings, [m.id for m in room.spec.measures], f"not judged: {error}"))
    except Exception as error:  # a judge that broke knows nothing: unknown, with the place where it broke
        where = traceback.extract_tb(error.__traceback__)[-1]
        note = f"the check raised {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return Judgement(unmeasured(settings, [m.id for m in room.spec.measures], note))
    return _guarded(room.spec, said, settings, unfinished(events))


def unfinished(events: Sequence[Event]) -> str:
    """Why the history does not cover the whole plan; empty when it does.

    Of a run that was gone on with, only the last part says how it ended.
    """
    starts = [place for place, event in enumerate(events) if event.op < 0 and event.what == STARTED]
    ended = events[starts[-1] :] if starts else events
    never = never_answered(events)
    return _stopped(ended) or (f"no '{never[0]}' request was ever answered" if never else "")


def _stopped(events: Sequence[Event]) -> str:
    for died in notes(events, DIED):
        return f"the server died before the gate had finished ({died.get('message', '')})"
    for stuck in notes(events, STUCK):
        return f"the gate was given up: {stuck.get('message', '')}"
    for broke in notes(events, BROKE):
        return f"the harness broke while it drove the gate ({broke.get('message', '')})"
    if any(notes(events, INTERRUPTED)):
        return "the run was interrupted before the gate had finished"
    if not any(notes(events, FINISHED)):
        return "the record stops before the gate had finished"
    return ""


def never_answered(events: Sequence[Event]) -> list[str]:
    """Kinds of request that were asked but ended in `info` every time: such a history proves nothing."""
    asked = Counter(event.what for event in events if event.kind == "invoke")
    known = {event.what for event in events if event.kind in ("ok", "fail")}
    return [what for what in asked if what not in known]


def _guarded(spec: GateSpec, said: Judgement, settings: Settings, gap: str) -> Judgement:
    found = {measure.id: measure for measure in said.measures}
    extra = [measure_id for measure_id in found if measure_id not in {m.id for m in spec.measures}]
    if extra:
        note = f"the check returned a measure that the registry does not know: {extra[0]}"
        return Judgement(unmeasured(settings, [m.id for m in spec.measures], note))
    missing = unmeasured(
        settings, [m.id for m in spec.measures if m.id not in found], "the check did not return it"
    )
    filled = found | {measure.id: measure for measure in missing}
    ordered = tuple(_held_back(_finite(filled[m.id]), gap) for m in spec.measures)
    return replace(said, measures=ordered)


def _finite(measure: Measure) -> Measure:
    """The measure without numbers that a record cannot hold: such a value was not measured."""
    ends = measure.interval or ()
    interval = measure.interval if all(math.isfinite(end) for end in ends) else None
    estimate = measure.estimate if math.isfinite(measure.estimate or 0.0) else None
    measure = replace(measure, interval=interval, estimate=estimate)
    if measure.value is None or math.isfinite(measure.value):
        return measure
    note = "; ".join(part for part in (f"the check gave {measure.value}", measure.note) if part)
    return replace(measure, value=None, note=note)


def _held_back(measure: Measure, gap: str) -> Measure:
    if not gap or measure.verdict is Verdict.FAIL:
        return measure
    so_far = "" if measure.value is None else f"{measure.value:.4g} so far, n = {measure.n}"
    note = "; ".join(part for part in (gap, so_far, measure.note) if part)
    return replace(measure, value=None, note=note)


def seconds(events: Sequence[Event]) -> float:
    """How long the gate took by its own record."""
    return events[-1].t_s if events else 0.0


def counted(events: Sequence[Event]) -> dict[str, int]:
    """How many operations were asked, answered, failed and lost."""
    kinds = Counter(event.kind for event in events if event.op >= 0)
    names = {"invoke": "asked", "ok": "answered", "fail": "failed", "info": "lost"}
    return {name: kinds[cast(Any, kind)] for kind, name in names.items()}
