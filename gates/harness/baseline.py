"""Baselines: what an earlier run measured, kept in `reports/baselines/<model>.<profile>.json`.

A run copies the baseline that it is held against into its own folder, so that it can be judged again later
with the same one. A baseline moves only by hand, with a reason. Knows nothing of what the measures mean; of a
gate's items it keeps the first answer of those whose `server` is the candidate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates.errors import UsageError
from gates.harness import history, provenance, shape
from gates.harness.record import RunFolder, State, write_whole
from gates.harness.verdict import spec_of

SCHEMA = 1
CANDIDATE = "candidate"
_BASELINE = shape.fields(
    {
        **dict.fromkeys(("run", "reason", "model_sha256", "profile_sha256"), shape.text),
        "measures": shape.table(shape.number),
        "items": shape.table(shape.rows(shape.table(shape.anything))),
    }
)
FOLDER = provenance.ROOT / "reports" / "baselines"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an earlier run measured: values by measure id, and the graded items of its gates by gate."""

    measures: Mapping[str, float]
    items: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def path_of(model_file: str, profile: str, *, root: Path = FOLDER) -> Path:
    """Where the baseline of a model and a profile lies."""
    return root / f"{Path(model_file).stem}.{profile}.json"


def adopt(folder: RunFolder, model: Mapping[str, Any] | None, profile: str, *, root: Path = FOLDER) -> None:
    """Copy the baseline of this very model and profile into the run folder, if there is one."""
    record = check(model["file"], profile, root=root) if model else None
    if model and record and record["model_sha256"] == model["sha256"]:  # another model's are no baseline
        write_whole(folder.baseline_json, document(record))


def check(model_file: str, profile: str, *, root: Path = FOLDER) -> Mapping[str, Any] | None:
    """What lies where the baseline of a model and profile is kept, or None; UsageError for a damaged one."""
    path = path_of(model_file, profile, root=root)
    return _checked(path) if path.is_file() else None


def of_run(folder: RunFolder) -> Baseline | None:
    """The baseline that a run is held against; None when there was none."""
    if not folder.baseline_json.is_file():
        return None
    record = _checked(folder.baseline_json)
    return Baseline(record["measures"], record["items"])


def promote(folder: RunFolder, reason: str, *, root: Path = FOLDER) -> Path:
    """Make a run the baseline of its model and profile; UsageError when it does not qualify.

    It must be a pass, but for claims that compare with a baseline where none could be compared with.
    """
    if not reason.strip():
        raise UsageError(
            "a baseline moves only with a reason: --reason 'why these numbers are the new normal'"
        )
    run, verdict = folder.read_run(), folder.read_verdict()
    measures = [measure for gate in verdict["gates"] for measure in gate["measures"]]
    doubts = [measure["id"] for measure in measures if _forbids(measure)]
    if doubts or run["state"] != State.FINISHED:
        named = f": {', '.join(doubts[:3])}" if doubts else ""
        raise UsageError(f"run {folder.path.name} is no pass ({verdict['verdict']}){named}")
    if run["model"] is None:
        raise UsageError(
            f"run {folder.path.name} was made against --base-url: its model's digest is not known"
        )
    record = {
        "schema": SCHEMA,
        "run": folder.path.name,
        "reason": reason.strip(),
        "commit": run["tree"]["commit"],
        "model_sha256": run["model"]["sha256"],
        "profile_sha256": run["profile_sha256"],
        "measures": {measure["id"]: measure["value"] for measure in measures if measure["value"] is not None},
        "items": {gate["name"]: _kept(folder, gate["name"]) for gate in verdict["gates"]},
    }
    path = path_of(run["model"]["file"], run["profile"], root=root)
    write_whole(path, document(record))
    return path


def document(record: Mapping[str, Any]) -> str:
    """A baseline as JSON with one line an item, so that a change of it can be read line by line."""
    gates = {name: rows for name, rows in record["items"].items() if rows}
    head = json.dumps({**record, "items": {}}, indent=2, ensure_ascii=False, allow_nan=False)
    lists = [
        f"    {json.dumps(name)}: [\n"
        + ",\n".join(f"      {json.dumps(row, ensure_ascii=False, allow_nan=False)}" for row in rows)
        + "\n    ]"
        for name, rows in gates.items()
    ]
    return head.removesuffix("{}\n}") + ("{\n" + ",\n".join(lists) + "\n  }" if lists else "{}") + "\n}\n"


def _kept(folder: RunFolder, gate: str) -> list[dict[str, Any]]:
    rows = (dict(event.fields) for event in history.items(folder.items(gate)))
    return [row for row in rows if row.get("server") == CANDIDATE and not row.get("repeat")]


def _forbids(measure: Mapping[str, Any]) -> bool:
    """Whether a claim keeps its run from becoming a baseline; one that found nothing to compare does not."""
    spec = spec_of(measure["id"])
    alone = spec.paired and measure["verdict"] == "unknown" and measure["n"] == 0
    return not (measure["verdict"] == "pass" or spec.notice or alone)


def _checked(path: Path) -> dict[str, Any]:
    try:
        record = shape.parsed(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"baseline {path} is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise UsageError(f"baseline {path} is not of schema {SCHEMA}; promote a run anew to replace it")
    fault = _BASELINE(record, "baseline")
    if fault:
        raise UsageError(
            f"baseline {path} is damaged or was edited: {fault}; promote a run anew to replace it"
        )
    return record
