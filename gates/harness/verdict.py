"""Measures, the three verdicts, and how they merge: fail over unknown over pass.

Owns what a check returns (`Judgement`) and the form of `verdict.json` (schema 1).
Knows limits only as numbers handed in from a profile; knows nothing of servers and pytest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gates import registry
from gates.profile import Settings, names
from gates.spec import Better, MeasureSpec

SCHEMA = 1


class Verdict(StrEnum):
    """What is known about a claim: it holds, it is broken, or nobody can tell."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured claim; `value` None means not measured, which makes the verdict unknown.

    Where not the estimate is judged but what its interval allows, `estimate` is the estimate, and `judged`
    says in words what of the interval `value` is.
    """

    id: str
    value: float | None
    limit: float
    better: Better
    n: int
    interval: tuple[float, float] | None = None
    baseline: float | None = None
    note: str = ""
    estimate: float | None = None
    judged: str = ""

    @property
    def verdict(self) -> Verdict:
        """Pass when the value is on the right side of the limit; unknown when there is no finite value."""
        if self.value is None or not math.isfinite(self.value):
            return Verdict.UNKNOWN
        good = self.value >= self.limit if self.better == "higher" else self.value <= self.limit
        return Verdict.PASS if good else Verdict.FAIL


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that belong to the report as an attachment (CSV), such as one row a cell.

    One with a title also stands on the first screen of the HTML report, folded unless it is to be open.
    """

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""
    open: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing (SVG) that belongs to the report: as an attachment and on its first screen."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that went wrong under a claim: where, what was expected, what was found, in plain words."""

    measure: str
    where: str
    expected: str
    found: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a check says: measures, the rows and drawings behind them, the findings under broken claims."""

    measures: tuple[Measure, ...]
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """One gate's part of the verdict file."""

    name: str
    seconds: float
    history: str | None
    judgement: Judgement
    operations: Mapping[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Merged from the measures that count."""
        return merge(measure.verdict for measure in self.judgement.measures if not spec_of(measure.id).notice)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict of a whole run; `run` is its provenance, `reasons` say why it is not a plain pass."""

    profile: str
    run: Mapping[str, Any]
    gates: tuple[GateVerdict, ...]
    not_tested: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    cause: Verdict | None = None  # a verdict of the run itself, such as unknown when the server never started

    @property
    def verdict(self) -> Verdict:
        """Fail over unknown over pass, over gates and the run's own cause; a run without gates is unknown."""
        own = [self.cause] if self.cause else []
        return merge([*own, *(gate.verdict for gate in self.gates if counts(gate))])


def spec_of(measure_id: str) -> MeasureSpec:
    """The registry's entry of a measure id."""
    return registry.find(measure_id.split(".", 1)[0]).measure(measure_id)


def counts(gate: GateVerdict) -> bool:
    """Whether the gate has a measure that moves the verdict."""
    return any(not spec_of(measure.id).notice for measure in gate.judgement.measures)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Fail over unknown over pass; nothing at all is unknown."""
    seen = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS):
        if verdict in seen:
            return verdict
    return Verdict.UNKNOWN


def measured(
    settings: Settings,
    measure_id: str,
    value: float | None,
    *,
    n: int,
    interval: tuple[float, float] | None = None,
    baseline: float | None = None,
    note: str = "",
    estimate: float | None = None,
    judged: str = "",
) -> Measure:
    """A measure with direction from the registry and limit from the profile's table."""
    spec = spec_of(measure_id)
    limit = settings.number(spec.limit_key)
    return Measure(measure_id, value, limit, spec.better, n, interval, baseline, note, estimate, judged)


def shown(value: float | None, estimate: float | None, judged: str, *, digits: int = 6) -> str:
    """What was found, for people: the value, or the estimate with what of its interval is judged."""
    text = "-" if value is None else f"{value:.{digits}g}"
    if estimate is None:
        return text
    return f"{estimate:.{digits}g}" + ("" if value is None else f" ({judged} {text})")


def worst(settings: Settings, measure_id: str, values: Sequence[float | None]) -> float | None:
    """The worst of what was found in several places; None where one does not say, unless another is too bad.

    Who leaves a number out where it would be bad must not pass on those that it gives.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = min(known) if spec_of(measure_id).better == "higher" else max(known)
    too_bad = measured(settings, measure_id, found, n=len(known)).verdict is Verdict.FAIL
    return found if too_bad or len(known) == len(values) else None


def unmeasured(settings: Settings, measure_ids: Iterable[str], note: str) -> tuple[Measure, ...]:
    """Measures without a value, each unknown for the reason in `note`."""
    return tuple(measured(settings, measure_id, None, n=0, note=note) for measure_id in measure_ids)


def as_record(run: RunVerdict) -> dict[str, Any]:
    """The verdict file as plain JSON values, schema 1."""
    return {
        "schema": SCHEMA,
        "profile": run.profile,
        "verdict": run.verdict.value,
        "reasons": list(run.reasons),
        "run": dict(run.run),
        "gates": [_gate_record(gate) | {"rerun": rerun(run, gate)} for gate in run.gates],
        "not_tested": list(run.not_tested),
    }


def rerun(run: RunVerdict, gate: GateVerdict) -> str | None:
    """The command that asks a gate the same again; None for the harness's own measures."""
    if gate.history is None:
        return None
    settings = run.run["settings"]["run"]
    profile = run.profile if run.profile in names() else f"{run.profile}.toml"  # a file is named as one
    words = f"python -m gates run --profile {profile} --seed {run.run['seed']}"
    if settings["selection"]:
        words += f" --only {gate.name}"
    if not run.run["server"]["launched"]:
        return f"{words} --base-url URL"
    if settings["model"] == "given":
        words += " --model PATH"
    return words if run.run["own_server"] else f"{words} --server COMMAND"


def _gate_record(gate: GateVerdict) -> dict[str, Any]:
    return {
        "name": gate.name,
        "title": registry.find(gate.name).title,
        "verdict": gate.verdict.value,
        "seconds": round(gate.seconds, 3),
        "history": gate.history,
        "operations": dict(gate.operations),
        "measures": [_measure_record(measure) for measure in gate.judgement.measures],
        "findings": [_finding_record(finding) for finding in gate.judgement.findings],
    }


def _measure_record(measure: Measure) -> dict[str, Any]:
    spec = spec_of(measure.id)
    return {
        "id": measure.id,
        "title": spec.title,
        "verdict": measure.verdict.value,
        "value": measure.value,
        "limit": measure.limit,
        "better": measure.better,
        "unit": spec.unit,
        "n": measure.n,
        "interval": list(measure.interval) if measure.interval else None,
        "baseline": measure.baseline,
        "severity": spec.severity,
        "arm": spec.arm,
        "notice": spec.notice,
        "note": measure.note,
        **({} if measure.estimate is None else {"estimate": measure.estimate, "judged": measure.judged}),
    }


def _finding_record(finding: Finding) -> dict[str, str]:
    return {
        "measure": finding.measure,
        "where": finding.where,
        "expected": finding.expected,
        "found": finding.found,
        "detail": finding.detail,
    }


def summary_line(record: Mapping[str, Any]) -> str:
    """The one line of a verdict: the word, the profile, how many claims hold, and the first reason."""
    claims = [m for gate in record["gates"] for m in gate["measures"] if not m["notice"]]
    held = sum(m["verdict"] == "pass" for m in claims)
    reasons: Sequence[str] = record["reasons"]
    tail = f" - {reasons[0]}" if reasons else ""
    return (
        f"{record['verdict'].upper()}: profile {record['profile']}, {held} of {len(claims)} claims hold{tail}"
    )
