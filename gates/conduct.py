"""Conducts the gates of one run: drives each against the server, and judges each from its record alone.

Driving writes a history; judging reads it. Nothing passes between the two but the run folder, so a run can be
judged again without a server. Knows no particular gate, and nothing of pytest and reports.
"""

from __future__ import annotations

import contextlib
import hashlib
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gates import registry
from gates.errors import CheckError, DriveStopped
from gates.harness import baseline, history, probe, room
from gates.harness.client import Client
from gates.harness.history import Event, History
from gates.harness.launch import Server
from gates.harness.record import RunFolder, State, write_whole
from gates.harness.reply import ClientError
from gates.harness.rig import DIED, FURTHER_ENDED, STUCK, Progress, Rig
from gates.harness.room import Room
from gates.harness.verdict import (
    GateVerdict,
    Judgement,
    RunVerdict,
    Verdict,
    counts,
    measured,
    shown,
    spec_of,
    unmeasured,
)
from gates.profile import RELEASE, Profile, Settings
from gates.spec import SIGNS, GateSpec

HEALTH_S = 30.0
NOTE_SHOWN = 240  # characters of a claim's note that its reason repeats
NAMED = 6  # further claims of a gate that its reason names


@dataclass(frozen=True, slots=True)
class Drive:
    """What is needed to drive the gates of one run; `shards` are further servers with the same model.

    `part` is which part of the items is asked, and of how many; `further` starts one more server with these
    words on its command line, where the run starts our own engine.
    """

    profile: Profile
    folder: RunFolder
    server: Server
    seed: int
    data: Path | None = None
    api_key: str | None = None
    shards: tuple[Server, ...] = ()
    control: Server | None = None
    part: tuple[int, int] = (1, 1)
    further: Callable[[Sequence[str]], AbstractContextManager[Server]] | None = None
    own: bool = True  # the server is the engine of this checkout


def seed_of(run_seed: int, gate: str) -> int:
    """The seed of one gate, derived from the run's, so that a gate alone asks what it asks among others."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}:{gate}".encode()).digest()[:6], "big")


def drive_gate(drive: Drive, spec: GateSpec, progress: Progress) -> None:
    """Plan and drive one gate; every outcome, also a crash of the gate itself, ends in its history.

    What an interrupted run has finished is kept; what it has begun is gone on with, or driven again.
    """
    path = drive.folder.history(spec.name)
    before = history.read(path)
    if before and not room.unfinished(before):
        return
    if before and not spec.by_item:
        path.rename(path.with_name(f"history.{before[-1].t_s:.0f}s.jsonl"))
        before = []
    with History(path, before=before) as record:
        record.note(room.STARTED, unix_s=round(time.time(), 3), seed=seed_of(drive.seed, spec.name))
        try:
            _drive(drive, room.load(spec), record, before, progress)
        except DriveStopped:
            pass  # the rig has noted why, with the request during which it happened
        except KeyboardInterrupt:
            record.note(room.INTERRUPTED)
            raise
        except Exception as error:  # the step boundary: whatever breaks in a room makes this gate unknown
            where = traceback.format_exception(error)[-6:]
            record.note(room.BROKE, message=f"{type(error).__name__}: {error}", traceback="".join(where))
        else:
            record.note(room.FINISHED, **_memory(drive.server))


def _drive(drive: Drive, gate: Room, record: History, before: Sequence[Event], progress: Progress) -> None:
    if gate.spec.white_box and not drive.own:
        message = "it judges the engine of this checkout, this run another server: leave it out with --only"
        record.note(STUCK, message=message)
        return
    settings = drive.profile.table(gate.spec.name)
    plan = gate.plan(settings, seed=seed_of(drive.seed, gate.spec.name))
    record.note(room.PLANNED, cells=plan.cells, **_memory(drive.server))
    if not drive.server.alive():
        record.note(DIED, message="before this gate began")
        return
    progress.cells(plan.cells)
    budget_s = settings.number("budget_minutes") * 60
    stop_at_s = time.monotonic() + budget_s * drive.profile.table("run").number("give_up_ratio")
    with ExitStack() as stack:
        rig = _Rigs(drive, record, before, progress, stop_at_s, stack).main()
        if not rig.client.ready(within_s=HEALTH_S):
            record.note(STUCK, message=f"/health was not good within {HEALTH_S:g} s before it began")
            return
        for one in (rig, *rig.shards, *([rig.control] if rig.control else [])):
            _name_model(one.client)
        try:
            gate.drive(plan, rig)
        finally:
            _keep_metrics(rig.client, drive.folder.metrics(gate.spec.name))


@dataclass(frozen=True, slots=True)
class _Rigs:
    """Makes what one gate asks its servers through; `stack` closes the clients when the gate is over."""

    drive: Drive
    record: History
    before: Sequence[Event]
    progress: Progress
    stop_at_s: float
    stack: ExitStack

    def main(self) -> Rig:
        """The rig of the server under test, with those of its shards, its control and further servers."""
        drive, rig = self.drive, self.of(self.drive.server)
        rig.further = partial(self.another, drive.further) if drive.further else None
        rig.shards = tuple(self.of(server) for server in drive.shards)
        rig.control = self.of(drive.control, "the control") if drive.control else None
        return rig

    def of(self, server: Server, called: str = "the server under test") -> Rig:
        """A rig of one server alone."""
        drive, limits = self.drive, self.drive.profile.table("server")
        client = Client(server.base_url, deadline_s=limits.number("request_seconds"), api_key=drive.api_key)
        return Rig(
            client=self.stack.enter_context(client),
            history=self.record,
            progress=self.progress,
            alive=server.alive,
            called=called,
            data=drive.data,
            context_tokens=limits.count("context_tokens"),
            busy_elsewhere_s=partial(_busy_elsewhere_s, server),
            memory=partial(_held, server),
            stop_at_s=self.stop_at_s,
            before=self.before,
            part=drive.part,
            baseline=baseline.of_run(drive.folder),
        )

    @contextmanager
    def another(
        self, start: Callable[[Sequence[str]], AbstractContextManager[Server]], words: Sequence[str]
    ) -> Iterator[Rig]:
        """A further server that is started with these words, and ended behind the block."""
        with start(words) as server:
            rig = self.of(server)
            _name_model(rig.client)
            yield rig
            self.record.note(FURTHER_ENDED, left=server.stop())


def _name_model(client: Client) -> None:
    """Let requests name the model that the server lists first, for some servers want a name."""
    with contextlib.suppress(ClientError, IndexError):
        client.model = client.models()[0].id


def _busy_elsewhere_s(server: Server) -> float | None:
    """Processor time that went to neither the server nor us; None for a server that is not ours."""
    return probe.busy_elsewhere_s(server.pid, own_s=time.process_time()) if server.pid else None


def _keep_metrics(client: Client, path: Path) -> None:
    """Keep what the server counts of itself at the end of a gate; a server without `/metrics` keeps none."""
    with contextlib.suppress(ClientError):
        write_whole(path, client.metrics())


def judge_gate(folder: RunFolder, spec: GateSpec, settings: Settings) -> GateVerdict:
    """The verdict of one gate from its recorded history, and the baseline that the run adopted.

    A history with a damaged line proves nothing, so every measure of its gate is unknown.
    """
    path = folder.history(spec.name)
    events: list[Event] = []
    try:
        events = history.read(path)
        items = history.items(folder.items(spec.name))
        judgement = room.judge(room.load(spec), [*events, *items], settings, baseline.of_run(folder))
    except ImportError as error:
        note = f"the gate cannot be imported ({error})"
        judgement = Judgement(unmeasured(settings, [measure.id for measure in spec.measures], note))
    except CheckError as error:
        note = f"the record is damaged ({error})"
        judgement = Judgement(unmeasured(settings, [measure.id for measure in spec.measures], note))
    return GateVerdict(
        name=spec.name,
        seconds=room.seconds(events),
        history=str(path.relative_to(folder.path)) if path.is_file() else None,
        judgement=judgement,
        operations=room.counted(events),
    )


def judge_run(folder: RunFolder, profile: Profile) -> RunVerdict:
    """The verdict of a whole run from its folder: the gates that were chosen, and the run's own measures."""
    run = folder.read_run()
    chosen = [spec for spec in profile.every_gate if spec.name in run["chosen"]]
    gates = [judge_gate(folder, spec, profile.table(spec.name)) for spec in chosen]
    own = GateVerdict("run", run.get("seconds", 0.0), None, _own_judgement(run, profile, gates))
    cause, reasons = _causes(run, going_on=folder.going_on and run["state"] == State.RUNNING)
    return RunVerdict(
        profile=profile.name,
        run=run,
        gates=(*gates, own),
        not_tested=_not_tested(run, profile, gates),
        reasons=(*reasons, *_reasons([gate for gate in (*gates, own) if counts(gate)])),
        cause=cause,
    )


def _own_judgement(run: Mapping[str, Any], profile: Profile, gates: list[GateVerdict]) -> Judgement:
    settings = profile.table("run")
    left: list[str] | None = run.get("leftover")
    budget = settings.number("budget_minutes")
    used = {
        gate.name: gate.seconds / 60 / profile.table(gate.name).number("budget_minutes") for gate in gates
    }
    used["the whole run"] = run.get("seconds", 0.0) / 60 / budget
    worst = max(used, key=lambda name: used[name])
    parts = ", ".join(f"{name} {ratio:.0%}" for name, ratio in used.items())
    measures = [
        measured(
            settings, "run.budget_ratio", round(used[worst], 4), n=len(used), note=f"used of budget: {parts}"
        )
    ]
    if run["server"]["launched"]:
        count = None if left is None else len(left)
        note = "the run stopped before the server was ended" if left is None else "; ".join(left)
        measures.insert(0, measured(settings, "run.leftover_count", count, n=1, note=note))
    return Judgement(tuple(measures))


def _causes(run: Mapping[str, Any], *, going_on: bool) -> tuple[Verdict | None, tuple[str, ...]]:
    """What of the run itself keeps it from a plain verdict: unfinished, interrupted, or no server."""
    state = run["state"]
    if state == State.FINISHED:
        return None, ()
    since = [run.get("started_utc", ""), *run.get("resumed_utc", ())][-1]
    words = {
        State.RUNNING: f"the run is going on, since {since}; this is its record so far"
        if going_on
        else "the run stopped before its end; the record is incomplete",
        State.INTERRUPTED: "the run was interrupted",
        State.INFRASTRUCTURE: f"the run could not be done: {run.get('error', '')}",
    }
    return Verdict.UNKNOWN, (words[state],)


def _reasons(gates: list[GateVerdict]) -> tuple[str, ...]:
    """One line for each gate that does not hold, broken ones first."""
    wanted = (Verdict.FAIL, Verdict.UNKNOWN)
    return tuple(_reason(gate) for verdict in wanted for gate in gates if gate.verdict is verdict)


def _reason(gate: GateVerdict) -> str:
    claims = [m for m in gate.judgement.measures if m.verdict is gate.verdict and not spec_of(m.id).notice]
    first = claims[0]
    others = [claim.id.split(".", 1)[1] for claim in claims[1:]]
    more = f" (also {', '.join(others[:NAMED])}{', ...' if len(others) > NAMED else ''})" if others else ""
    note = textwrap.shorten(first.note, NOTE_SHOWN, placeholder=" ...")
    if first.value is None:
        return f"{first.id} is unknown: {note}{more}"
    seen = shown(first.value, first.estimate, first.judged, digits=4)
    wanted = f"{first.id} is {seen}, wanted {SIGNS[first.better]} {first.limit:g}{more}"
    return f"{wanted}: {note}" if note else wanted


def _not_tested(run: Mapping[str, Any], profile: Profile, gates: list[GateVerdict]) -> tuple[str, ...]:
    """What nobody may read into a pass: gates left out, claims with nothing to judge, what has no gate."""
    why = {spec.name: f"runs in profile {profile.name} when --only names it" for spec in profile.every_gate}
    why |= {spec.name: "left out by --only" for spec in profile.gates}
    left_out = [spec for spec in registry.GATES if spec.name not in run["chosen"]]
    lines = [f"{spec.title}: {why.get(spec.name, f'not in profile {profile.name}')}" for spec in left_out]
    lines += [
        f"{spec_of(claim.id).title} ({claim.id}): there was nothing of it in this run"
        for gate in gates
        for claim in gate.judgement.measures
        if claim.verdict is Verdict.PASS and claim.n == 0 and claim.note
    ]
    if profile.name != RELEASE:
        lines.append(f"A release: only a pass of profile {RELEASE} allows its tag, this is {profile.name}")
    return (*lines, *registry.UNCOVERED)


def _held(server: Server) -> probe.Memory | None:
    return probe.memory(server.pid) if server.pid else None


def _memory(server: Server) -> dict[str, Any]:
    held = _held(server)
    return {"anon_bytes": held.anon_bytes, "swap_bytes": held.swap_bytes} if held else {}
