"""The release tag: made only when a pass of `release` is recorded for exactly this tree, model and profile.

Every recorded pass is judged again from its record before it counts. Knows git's `tag` and the run folders;
asks no server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates import judge, profile
from gates.errors import ExitCode, GateError, InfrastructureError, UsageError
from gates.harness import provenance, record
from gates.harness.provenance import Tree
from gates.harness.record import RunFolder
from gates.harness.verdict import Verdict
from gates.profile import RELEASE, Profile

VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class NotReleasable(GateError):  # noqa: N818  named for the answer
    """No recorded pass allows this tag; the message lists what is missing."""

    exit_code = ExitCode.UNKNOWN


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run must have judged to allow the tag."""

    tree: Tree
    model_sha256: str | None  # None: the model that the run judged, which the tag then names
    profile: Profile


def make(version: str, *, model: Path | None, runs: Path, root: Path = provenance.ROOT) -> str:
    """Make the annotated tag and return the name of the run that allows it; else say what is missing."""
    if not VERSION.fullmatch(version):
        raise UsageError(f"'{version}' is not a version; allowed: vX.Y.Z with whole numbers, such as v0.2.0")
    if provenance.git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/{version}") is not None:
        raise UsageError(f"the tag {version} exists already; a release is never tagged twice")
    if model and not model.is_file():
        raise UsageError(f"there is no model file at {model}; name the released model with --model PATH")
    digest = provenance.digest(model) if model else None
    wanted = Wanted(provenance.checkout(root), digest, profile.load(RELEASE))
    allowing = permission(wanted, runs)
    judged = allowing.read_run()["model"]["sha256"]
    text = f"{version}\n\nPass of profile {RELEASE}, run {allowing.path.name}\nmodel sha256 {judged}\n"
    if provenance.git(root, "tag", "--annotate", version, "--message", text) is None:
        raise InfrastructureError(
            f"git could not make the tag {version}: are name and address of the author set?"
        )
    return allowing.path.name


def permission(wanted: Wanted, runs: Path) -> RunFolder:
    """The newest run that allows the tag; NotReleasable with one line for each thing that is missing."""
    if wanted.tree.commit is None:
        raise NotReleasable("this is no git checkout, so there is nothing to tag")
    if wanted.tree.dirty:
        raise NotReleasable("the checkout has local changes: commit them, then run the gates on that commit")
    near: list[str] = []
    for path in reversed(record.runs(runs)):
        folder = RunFolder(path)
        try:
            if folder.read_run()["profile"] != RELEASE:
                continue
            missing = lacks(folder, wanted)
        except UsageError as error:  # a spoiled record allows nothing, and keeps no good one from doing so
            missing = [str(error)]
        if not missing:
            return folder
        near.append(f"{path.name}: {'; '.join(missing)}")
    start = f"no recorded pass of profile '{RELEASE}' for this tree ({wanted.tree.short}), model and profile"
    listing = "\n  ".join(near[:5]) or f"no run of profile '{RELEASE}' in {runs}"
    raise NotReleasable(
        f"{start}:\n  {listing}\nmake one with: python -m gates run --profile {RELEASE} --model PATH"
    )


def lacks(folder: RunFolder, wanted: Wanted) -> list[str]:
    """What a run lacks to allow the tag; empty when it allows it."""
    run = folder.read_run()
    missing = _differences(run, wanted)
    if not folder.verdict_json.is_file():
        return [*missing, "it has no verdict"]
    try:
        judged = judge.judge(folder)
    except GateError as error:
        return [*missing, f"it cannot be judged again: {error}"]
    if judged.verdict.verdict is not Verdict.PASS:
        missing.append(f"its verdict is {judged.verdict.verdict}, not pass")
    if judged.differences:
        missing.append(f"judged again it is not what was recorded ({judged.differences[0]})")
    return missing


def _differences(run: Mapping[str, Any], wanted: Wanted) -> list[str]:
    model = run["model"]
    checks = [
        (run["tree"]["tree"] == wanted.tree.tree, "it judged another tree"),
        (not run["tree"]["dirty"], "it judged a checkout with local changes"),
        (model is not None, "it judged a server by --base-url, so its model is not known"),
        (model is None or wanted.model_sha256 in (None, model["sha256"]), "it judged another model"),
        (run["profile_sha256"] == wanted.profile.sha256, "the profile has changed since"),
        (run["settings"] == _tables(wanted.profile), "its recorded settings are not those of the profile"),
        (set(run["chosen"]) == {gate.name for gate in wanted.profile.gates}, "it left out gates"),
        (
            run["seed_of_profile"] and run["seed"] == wanted.profile.seed,
            "it was asked with a seed of its own (--seed)",
        ),
        (run["own_server"], "it judged another server than this engine (--server)"),
    ]
    return [text for good, text in checks if not good]


def _tables(settings: Profile) -> dict[str, dict[str, object]]:
    """The profile's tables as a record holds them."""
    return {name: dict(table) for name, table in settings.tables.items()}
