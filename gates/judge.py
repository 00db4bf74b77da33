"""Judges a recorded run again, without a server, from its folder alone.

Thresholds are those recorded in the run, not those of today's profile. The files of the run are made anew
only if the verdict is the recorded one or was never written; a different one is put beside the recorded one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates import conduct, outcome, profile
from gates.errors import UsageError
from gates.harness import record
from gates.harness.record import RunFolder, State
from gates.harness.verdict import RunVerdict, Verdict

SHOWN: Final = 60  # characters of a field that differs


@dataclass(frozen=True, slots=True)
class Rejudged:
    """The new verdict, its record, and the lines in which it differs from the recorded one."""

    verdict: RunVerdict
    content: Mapping[str, Any]
    differences: tuple[str, ...]

    @property
    def shown(self) -> Mapping[str, Any]:
        """What to say of the run: a pass that is not what was recorded is unknown, and that is why."""
        if not self.differences or self.content["run"]["state"] == State.RUNNING:
            return self.content
        reason = f"NOT what was recorded: {self.differences[0]}"
        if self.verdict.verdict is Verdict.PASS:
            reason = f"judged again it would pass; {reason}"
            return {**self.content, "verdict": Verdict.UNKNOWN.value, "reasons": [reason]}
        return {**self.content, "reasons": [reason, *self.content["reasons"]]}


def judge(folder: RunFolder) -> Rejudged:
    """Judge the run from its record and compare with the recorded verdict, if there is one."""
    run = folder.read_run()
    verdict = conduct.judge_run(folder, profile.recorded(run, folder.path.name))
    content = json.loads(json.dumps(outcome.sealed(folder, verdict)))
    if not folder.verdict_json.is_file():
        return Rejudged(verdict, content, ())
    before = folder.read_verdict()
    return Rejudged(verdict, content, tuple(differences(before, content)))


def confirm(folder: RunFolder) -> None:
    """UsageError unless the record, judged again, gives the recorded verdict in every word."""
    folder.read_verdict()
    found = judge(folder).differences
    if found:
        raise UsageError(
            f"run {folder.path.name} judged again is not what was recorded ({found[0]}): its record or this"
            " harness has changed since; make a run anew"
        )


def write(folder: RunFolder, judged: Rejudged) -> str:
    """Write the files of the judgement; one line that says what was done with them.

    Those of a run that is going on are its own to write.
    """
    if folder.going_on:
        return "the run is going on: nothing was written"
    if not judged.differences:
        new = not folder.verdict_json.is_file()
        outcome.write(folder, judged.verdict)
        return "the run had no verdict yet: written" if new else "the same verdict as recorded"
    record.write_json(folder.path / "verdict.rejudged.json", judged.content)
    return "NOT the recorded verdict: see verdict.rejudged.json; " + "; ".join(judged.differences[:5])


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two verdict records, one line a claim."""
    lines = []
    if before["verdict"] != after["verdict"]:
        lines.append(f"verdict was {before['verdict']}, is {after['verdict']}")
    old, new = _measures(before), _measures(after)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            lines.append(f"{name} was {_said(old.get(name))}, is {_said(new.get(name))}")
            if _said(old.get(name)) == _said(new.get(name)):
                lines[-1] = f"{name}: {_other(old[name], new[name])}"
    if not lines and before != after:
        lines.append("the same claims, but other words or digests around them")
    return lines


def _measures(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {measure["id"]: measure for gate in content["gates"] for measure in gate["measures"]}


def _other(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first field in which two measures of the same value differ."""
    known = {key: (_short(old, key), _short(new, key)) for key in sorted(old.keys() | new.keys())}
    field = next(key for key in known if (key in old, old.get(key)) != (key in new, new.get(key)))
    return "{} was {}, is {}".format(field, *known[field])


def _short(measure: Mapping[str, Any], field: str) -> str:
    return repr(measure[field])[:SHOWN] if field in measure else "absent"


def _said(measure: Mapping[str, Any] | None) -> str:
    return "absent" if measure is None else f"{measure['verdict']} ({measure['value']})"
