"""Baselines: what an earlier run measured, kept in `reports/baselines/<model>.<profile>.json`.

A run copies the baseline that it is held against into its own folder, so that it can be judged again later
with the same one. A baseline moves only by hand, with a reason. Knows nothing of what the measures mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates.errors import UsageError
from gates.harness import provenance
from gates.harness.record import RunFolder, write_json

SCHEMA = 1
FOLDER = provenance.ROOT / "reports" / "baselines"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an earlier run measured: values by measure id, and the outcome of every item by measure id."""

    measures: Mapping[str, float]
    items: Mapping[str, Mapping[str, bool]]


def path_of(model_file: str, profile: str, *, root: Path = FOLDER) -> Path:
    """Where the baseline of a model and a profile lies."""
    return root / f"{Path(model_file).stem}.{profile}.json"


def adopt(folder: RunFolder, model: Mapping[str, Any] | None, profile: str, *, root: Path = FOLDER) -> None:
    """Copy the baseline of this very model and profile into the run folder, if there is one."""
    if model is None:
        return
    path = path_of(model["file"], profile, root=root)
    if path.is_file():
        record = _checked(path)
        if record["model_sha256"] == model["sha256"]:  # another model's numbers are no baseline
            write_json(folder.baseline_json, record)


def of_run(folder: RunFolder) -> Baseline | None:
    """The baseline that a run is held against; None when there was none."""
    if not folder.baseline_json.is_file():
        return None
    record = _checked(folder.baseline_json)
    return Baseline(record["measures"], record["items"])


def promote(folder: RunFolder, reason: str, *, root: Path = FOLDER) -> Path:
    """Make a passed run the baseline of its model and profile; UsageError when it does not qualify."""
    if not reason.strip():
        raise UsageError(
            "a baseline moves only with a reason: --reason 'why these numbers are the new normal'"
        )
    run, verdict = folder.read_run(), folder.read_verdict()
    if verdict["verdict"] != "pass":
        raise UsageError(f"run {folder.path.name} is no pass ({verdict['verdict']})")
    if run["model"] is None:
        raise UsageError(
            f"run {folder.path.name} was made against --base-url: its model's digest is not known"
        )
    measures = [measure for gate in verdict["gates"] for measure in gate["measures"]]
    record = {
        "schema": SCHEMA,
        "run": folder.path.name,
        "reason": reason.strip(),
        "commit": run["tree"]["commit"],
        "model_sha256": run["model"]["sha256"],
        "profile_sha256": run["profile_sha256"],
        "measures": {measure["id"]: measure["value"] for measure in measures if measure["value"] is not None},
        "items": {},
    }
    path = path_of(run["model"]["file"], run["profile"], root=root)
    write_json(path, record)
    return path


def _checked(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"baseline {path} is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise UsageError(f"baseline {path} is not of schema {SCHEMA}; promote a run anew to replace it")
    return record
