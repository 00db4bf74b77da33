"""What all renderings of a verdict file share: its schema, the order of claims, numbers as people read them.

Knows the verdict file's form (schema 1) and nothing else of this repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SCHEMA = 1
ANSWERS = {
    "pass": "Every claim of this run holds.",
    "fail": "Not to be merged, not to be released: at least one claim is broken.",
    "unknown": "Not to be merged, not to be released on this run: nobody can tell.",
}
ALLOWED = {  # what a whole pass of a profile allows, judged on a server of this checkout
    "ci": "A change may be merged; a release needs a pass of profile release.",
    "release": "Its tag may be made: python -m gates tag checks the record once more.",
}
RELEASE_NEEDS = "A release needs a pass of profile release."
MIB = 2**20
ORDER = {"fail": 0, "unknown": 1, "notice": 2, "pass": 3}

Record = Mapping[str, Any]


def checked(record: Record) -> Record:
    """The record itself; ValueError when it is of another schema."""
    if record.get("schema") != SCHEMA:
        raise ValueError(f"verdict schema is {record.get('schema')!r}, this renderer reads {SCHEMA}")
    return record


def headline(record: Record) -> str:
    """The verdict in one line: the word, the profile, how many claims hold."""
    claims = [measure for measure in measures(record) if not measure["notice"]]
    held = sum(measure["verdict"] == "pass" for measure in claims)
    return f"{record['verdict'].upper()}: profile {record['profile']}, {held} of {len(claims)} claims hold"


def answer(record: Record) -> str:
    """Whether to ship, in one or two sentences: what the verdict allows, and what it does not."""
    said, profile = ANSWERS[record["verdict"]], record["profile"]
    if record["verdict"] != "pass":
        return said
    if profile in ALLOWED and not _whole(record["run"]):
        return f"{said} That is not the whole of profile {profile}, so it allows nothing alone."
    own = record["run"].get("own_server", False)
    return f"{said} {ALLOWED.get(profile, RELEASE_NEEDS) if own else RELEASE_NEEDS}"


def _whole(run: Record) -> bool:
    """Whether the run drove every gate of its profile, and every item."""
    return set(run["settings"]["run"]["gates"]) <= set(run["chosen"]) and run.get("part", [1, 1]) == [1, 1]


def about(record: Record) -> str:
    """What was judged, where and when, in one line: whose verdict it is belongs on the first screen."""
    run = record["run"]
    tree, host, model = run["tree"], run["host"], run["model"]
    commit = f"commit {(tree['commit'] or 'none')[:7]}" + (" with local changes" if tree["dirty"] else "")
    judged = (
        f"{model['file']} {model['sha256'][:8]}"
        if model
        else "served elsewhere: " + (", ".join(run.get("served_models") or ()) or "no model named")
    )
    where = f"{host['processor']}, {host['cpus']} cores"
    return " · ".join([commit, judged, where, run["started_utc"], f"{run.get('seconds', 0):.0f} s"])


def gate_line(gate: Record) -> str:
    """One gate in a few words: its name, its verdict, how many of its claims hold."""
    claims = [measure for measure in gate["measures"] if not measure["notice"]]
    held = sum(measure["verdict"] == "pass" for measure in claims)
    return f"{gate['name']} {gate['verdict']}, {held} of {len(claims)}"


def findings_title(record: Record) -> str:
    """What the single findings are called: in a run that passes they lie within the limits."""
    return "What went wrong" + (", within the limits" if record["verdict"] == "pass" else "")


def measures(record: Record) -> Iterator[Record]:
    """Every measure, in the order of the gates."""
    return (measure for gate in record["gates"] for measure in gate["measures"])


def broken_first(record: Record) -> list[Record]:
    """Every measure, broken ones first, then unknown ones, notices, and those that hold."""
    return sorted(measures(record), key=lambda measure: ORDER[word(measure)])


def word(measure: Record) -> str:
    """What to call a measure's state: its verdict, or `notice` for one that only tells."""
    return "notice" if measure["notice"] and measure["verdict"] != "pass" else str(measure["verdict"])


def aside(measure: Record) -> str:
    """What stands behind the claim of a notice that is marked; empty for every other measure."""
    return ", does not decide" if word(measure) == "notice" else ""


def mark(measure: Record) -> str:
    """The word of a measure's state in a table of text: only what does not hold in capitals."""
    return word(measure) if word(measure) == "pass" else word(measure).upper()


def value(number: float | None, unit: str) -> str:
    """A number with its unit; a ratio in per cent, a count alone, many bytes as MiB, a dash for none."""
    if number is None:
        return "-"
    if unit == "ratio":
        return f"{number * 100:.4g} %"
    if unit == "bytes" and abs(number) >= MIB:
        return f"{number / MIB:.4g} MiB"
    return f"{number:.4g}" if unit == "count" else f"{number:.4g} {unit}"


def found(measure: Record) -> str:
    """What was found, with its unit: the estimate, also where an end of its interval is judged."""
    estimate = measure.get("estimate")
    return value(measure["value"] if estimate is None else estimate, measure["unit"])


def interval(measure: Record) -> str:
    """The interval of a measure, with what of it is judged where that is not the estimate; or a dash."""
    if not measure["interval"]:
        return "-"
    ends = " to ".join(value(end, measure["unit"]) for end in measure["interval"])
    judged = measure.get("judged") if measure["value"] is not None else None
    return f"{ends}; judged: {judged}, {value(measure['value'], measure['unit'])}" if judged else ends


def again(record: Record) -> list[str]:
    """The commands that ask the same again, for each gate that does not hold."""
    return [gate["rerun"] for gate in record["gates"] if gate["verdict"] != "pass" and gate["rerun"]]
