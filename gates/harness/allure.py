"""Allure result files from a judged run: one result a claim, with steps, severity, labels and attachments.

Written from the record alone, so that a run judged again gives the same files: ids are derived from names,
times come from the history. Knows the result format (Allure 2 files, read by Allure 3) and no servers.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gates import registry
from gates.harness import history, junit, room, shape
from gates.harness.record import RunFolder, write_json, write_whole
from gates.harness.verdict import Finding, GateVerdict, Measure, RunVerdict, Table, Verdict, spec_of
from gates.spec import SIGNS, GateSpec

NAMESPACE = uuid.UUID("6f6b2c3e-6f0e-5d0a-9c55-2d1f3a9d7b10")  # fixed, so that equal names give equal ids
STATUSES = {Verdict.PASS: "passed", Verdict.FAIL: "failed", Verdict.UNKNOWN: "broken"}
CATEGORIES: tuple[Mapping[str, Any], ...] = (
    {"name": "Broken claims", "matchedStatuses": ["failed"]},
    {"name": "Unknown: nobody can tell", "matchedStatuses": ["broken"], "messageRegex": ".*UNKNOWN.*"},
)
UNITS = {
    "ratio": "",
    "count": "",
    "s": "s",
    "ms": "ms",
    "tps": "tok/s",
    "gib": "GiB",
    "tokens": "tok",
    "bytes": "B",
}
FINDINGS_SHOWN = 20
LOG_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Span:
    """When a gate ran, in milliseconds of Unix time, and how many cells it had planned."""

    start: int
    stop: int
    cells: int | None = None


def write(folder: RunFolder, verdict: RunVerdict) -> None:
    """Fill the run's Allure folder anew."""
    target = folder.allure
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    spans = {gate.name: _span(folder, verdict.run, gate) for gate in verdict.gates}
    for gate in verdict.gates:
        _write_gate(folder, verdict, gate, spans[gate.name])
    measures = [(measure, spans[gate.name]) for gate in verdict.gates for measure in gate.judgement.measures]
    write_whole(target / "gates-perf.json", json.dumps(performance(measures), indent=1) + "\n")
    write_whole(target / "environment.properties", environment(verdict))
    write_whole(target / "categories.json", json.dumps(list(CATEGORIES), indent=1) + "\n")
    write_json(target / "executor.json", executor(folder, verdict))
    write_json(target / "gates-globals.json", globals_of(folder, verdict))


def performance(measures: Iterable[tuple[Measure, Span]]) -> list[dict[str, Any]]:
    """The content of a `-perf.json` file: every measured number, for tables, trends and rules."""
    return [
        {"id": measure.id, "key": measure.id, "value": measure.value, "start": span.start, "stop": span.stop}
        for measure, span in measures
        if measure.value is not None
    ]


def environment(verdict: RunVerdict) -> str:
    """The environment table: what was judged, by what, on what; no address, no path, no name of a host."""
    run = verdict.run
    model, tree, host = run["model"] or {}, run["tree"], run["host"]
    rows = {
        "verdict": verdict.verdict.value,
        "profile": f"{verdict.profile} ({run['profile_sha256'][:12]})",
        "commit": f"{tree['commit'] or 'none'}{' + local changes' if tree['dirty'] else ''}",
        "model": f"{model['file']} ({model['sha256'][:12]})" if model else "served elsewhere, digest unknown",
        "seed": run["seed"],
        "host": f"{host['processor']}, {host['cpus']} cores, {host['memory_gib']} GiB",
        "system": f"{host['system']} {host['release']} {host['machine']}, Python {host['python']}",
    }
    return "".join(f"{name}={value}\n" for name, value in rows.items())


def executor(folder: RunFolder, verdict: RunVerdict) -> dict[str, Any]:
    """Who made the results: the gates themselves, named by the run."""
    return {
        "name": "gates",
        "type": "gates",
        "buildName": folder.path.name,
        "reportName": f"Gates {verdict.profile}",
    }


def globals_of(folder: RunFolder, verdict: RunVerdict) -> dict[str, Any]:
    """What belongs to the run and to no claim: its record, the end of the server's log, why it is no pass."""
    files = [_attach(folder, "run.json", "run.json", "application/json", folder.run_json.read_text())]
    if folder.server_log.is_file() and folder.server_log.stat().st_size:
        tail = folder.server_log.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
        files.append(_attach(folder, "server.log", "end of the server's log", "text/plain", tail))
    return {"attachments": files, "errors": [{"message": reason} for reason in verdict.reasons]}


def as_csv(table: Table) -> str:
    """A table as CSV with a header line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows(table.rows)
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a claim stands: in which run and profile, under which gate, and when that gate ran."""

    run: str
    profile: str
    spec: GateSpec
    gate: GateVerdict
    span: Span


def _write_gate(folder: RunFolder, verdict: RunVerdict, gate: GateVerdict, span: Span) -> None:
    spec = registry.find(gate.name)
    for number, measure in enumerate(gate.judgement.measures):
        found = [finding for finding in gate.judgement.findings if finding.measure == measure.id]
        # The first claim carries the gate's time; the others follow it, in order, when it has been driven.
        start = span.start if number == 0 else span.stop + number
        own = Span(start, span.stop + number, span.cells)
        result = _result(Place(folder.path.name, verdict.profile, spec, gate, own), measure)
        # A file that two results name is shown by one alone, so each claim that needs rows has its own.
        rows = _gate_files(folder, gate, measure) if number == 0 or result["status"] != "passed" else []
        result["attachments"] = _finding_files(folder, measure, found) + rows
        write_json(folder.allure / f"{result['uuid']}-result.json", result)


def _result(place: Place, measure: Measure) -> dict[str, Any]:
    claim = spec_of(measure.id)
    status = "passed" if claim.notice else STATUSES[measure.verdict]
    result: dict[str, Any] = {
        "uuid": str(uuid.uuid5(NAMESPACE, f"{place.run}/{measure.id}")),
        "historyId": uuid.uuid5(NAMESPACE, measure.id).hex,
        "testCaseId": uuid.uuid5(NAMESPACE, f"case/{measure.id}").hex,
        "fullName": f"gates.{measure.id}",
        "name": claim.title,
        "description": _description(place.spec, measure),
        "status": status,
        "stage": "finished",
        "start": place.span.start,
        "stop": place.span.stop,
        "labels": [{"name": name, "value": value} for name, value in _labels(place, measure)],
        "links": [],
        "parameters": _parameters(measure),
        "steps": _steps(place, measure, status),
    }
    if status != "passed":
        word = "UNKNOWN: " if measure.verdict is Verdict.UNKNOWN else ""
        result["statusDetails"] = {"message": f"{word}{_state(measure)}. {measure.note}"}
    return result


def _labels(place: Place, measure: Measure) -> list[tuple[str, str]]:
    claim, spec = spec_of(measure.id), place.spec
    return [
        ("epic", f"Profile {place.profile}"),
        ("feature", spec.title),
        ("story", claim.title),
        ("parentSuite", spec.name),
        ("suite", spec.title),
        ("subSuite", claim.arm),
        ("arm", claim.arm),
        ("severity", claim.severity),
        ("framework", "gates"),
    ]


def _parameters(measure: Measure) -> list[dict[str, Any]]:
    """What was measured, left out of the history id so that a claim keeps its history over runs."""
    rows = {
        "value": _number(measure.value),
        "limit": f"{SIGNS[measure.better]} {measure.limit:g}",
        "n": str(measure.n),
    }
    if measure.interval:
        rows["interval"] = f"{measure.interval[0]:.4g} to {measure.interval[1]:.4g}"
    if measure.estimate is not None:
        rows["value"] = _number(measure.estimate)
        rows[f"judged: {measure.judged}"] = _number(measure.value)
    return [{"name": name, "value": value, "excluded": True} for name, value in rows.items()]


def _steps(place: Place, measure: Measure, status: str) -> list[dict[str, Any]]:
    span, asked = place.span, place.gate.operations
    steps = []
    if span.cells is not None:
        steps.append(_step(f"plan: {span.cells} cells", "passed", span.start, span.start))
    if asked:
        counts = ", ".join(f"{number} {name}" for name, number in asked.items())
        steps.append(_step(f"drive: {counts}", "passed", span.start, span.stop))
    steps.append(_step(f"check: {_state(measure)}", status, span.stop, span.stop))
    return steps


def _step(name: str, status: str, start: int, stop: int) -> dict[str, Any]:
    return {"name": name, "status": status, "stage": "finished", "start": start, "stop": stop}


def _description(spec: GateSpec, measure: Measure) -> str:
    note = f"\n\n{measure.note}" if measure.note else ""
    return f"{_state(measure)} on {measure.n} item(s). Gate: {spec.title}.{note}"


def _state(measure: Measure) -> str:
    unit = UNITS[spec_of(measure.id).unit]
    return (
        f"{measure.id} = {_number(measure.value)} {unit}".rstrip()
        + f", wanted {SIGNS[measure.better]} {measure.limit:g}"
    )


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.6g}"


def _finding_files(folder: RunFolder, measure: Measure, found: Sequence[Finding]) -> list[dict[str, str]]:
    if not found:
        return []
    blocks = [
        f"{f.where}\n  expected: {f.expected}\n  found:    {f.found}\n{f.detail}".rstrip()
        for f in found[:FINDINGS_SHOWN]
    ]
    more = len(found) - FINDINGS_SHOWN
    if more > 0:
        blocks.append(f"... and {more} more in the history")
    name = f"{measure.id}-findings.txt"
    return [_attach(folder, name, "what went wrong", "text/plain", "\n\n".join(blocks) + "\n")]


def _gate_files(folder: RunFolder, gate: GateVerdict, measure: Measure) -> list[dict[str, str]]:
    """The rows behind a gate and what the server counted, as attachments of one claim."""
    files = [
        _attach(folder, f"{measure.id}-{picture.name}.svg", picture.title, "image/svg+xml", picture.svg)
        for picture in gate.judgement.pictures
    ]
    files += [
        _attach(
            folder, f"{measure.id}-{table.name}.csv", table.title or table.name, "text/csv", as_csv(table)
        )
        for table in gate.judgement.tables
    ]
    metrics = folder.metrics(gate.name)
    if metrics.is_file():
        text = metrics.read_text(encoding="utf-8", errors="replace")
        files.append(_attach(folder, f"{measure.id}-metrics.txt", "server's metrics", "text/plain", text))
    return files


def _attach(folder: RunFolder, source: str, name: str, kind: str, content: str) -> dict[str, str]:
    target = f"{uuid.uuid5(NAMESPACE, source)}-attachment{Path(source).suffix}"
    write_whole(folder.allure / target, junit.clean(content))
    return {"name": name, "source": target, "type": kind}


def _span(folder: RunFolder, run: Mapping[str, Any], gate: GateVerdict) -> Span:
    events = history.read(folder.history(gate.name))
    started = next(history.notes(events, room.STARTED), None)
    begun = datetime.fromisoformat(run["started_utc"]).timestamp()
    said: Any = started.get("unix_s") if started else None
    start = int((begun if shape.number(said, "unix_s") else said) * 1000)
    planned = next(history.notes(events, room.PLANNED), None)
    return Span(start, start + int(gate.seconds * 1000), planned.get("cells") if planned else None)
