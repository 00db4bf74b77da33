"""Renders a verdict file as Markdown: `python reports/render.py verdict.json [verdict.md]`.

Knows the verdict file's form (schema 1) and nothing else of this repository; standard library only.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
HEADLINES = {
    "pass": "Every claim of this profile holds.",
    "fail": "At least one claim is broken: do not ship.",
    "unknown": "Nobody can tell: do not ship on this run.",
}
ORDER = {"fail": 0, "unknown": 1, "notice": 2, "pass": 3}
FINDINGS_SHOWN = 10


def render(record: Mapping[str, Any]) -> str:
    """The whole Markdown text; ValueError when the record is of another schema."""
    if record.get("schema") != SCHEMA:
        raise ValueError(f"verdict schema is {record.get('schema')!r}, this renderer reads {SCHEMA}")
    parts = [
        head(record),
        claims(record),
        findings(record),
        not_tested(record),
        provenance(record),
        again(record),
    ]
    return "\n".join(part for part in parts if part)


def head(record: Mapping[str, Any]) -> str:
    """The verdict in one line, with its reasons."""
    measures = [measure for _, measure in _measures(record) if not measure["notice"]]
    held = sum(measure["verdict"] == "pass" for measure in measures)
    lines = [
        f"# {record['verdict'].upper()}: profile {record['profile']}, {held} of {len(measures)} claims hold",
        "",
        HEADLINES[record["verdict"]],
        "",
    ]
    lines += [f"- {_cell(reason)}" for reason in record["reasons"]]
    return "\n".join(lines) + ("\n" if record["reasons"] else "")


def claims(record: Mapping[str, Any]) -> str:
    """The table of claims, broken ones first."""
    header = ["verdict", "claim", "value", "95 % interval", "limit", "n"]
    with_baseline = any(measure["baseline"] is not None for _, measure in _measures(record))
    rows = sorted(_measures(record), key=lambda row: ORDER[_word(row[1])])
    lines = ["## Claims", "", *_header([*header, "baseline"] if with_baseline else header)]
    for _, measure in rows:
        row = [
            _word(measure).upper() if _word(measure) != "pass" else "pass",
            f"{_cell(measure['title'])} (`{measure['id']}`)",
            _value(measure["value"], measure["unit"]),
            _interval(measure),
            f"{'≥' if measure['better'] == 'higher' else '≤'} {_value(measure['limit'], measure['unit'])}",
            str(measure["n"]),
        ]
        lines.append(_row([*row, _value(measure["baseline"], measure["unit"])] if with_baseline else row))
    notes = [f"- `{m['id']}`: {_cell(m['note'])}" for _, m in rows if m["note"]]
    return "\n".join([*lines, "", *notes, ""] if notes else [*lines, ""])


def findings(record: Mapping[str, Any]) -> str:
    """What went wrong, with what was expected, and whether the claim holds all the same."""
    lines = []
    for gate in record["gates"]:
        held = {measure["id"] for measure in gate["measures"] if measure["verdict"] == "pass"}
        for finding in gate["findings"][:FINDINGS_SHOWN]:
            within = " (within its limit)" if finding["measure"] in held else ""
            lines += [
                f"- `{finding['measure']}` at {_cell(finding['where'])}:",
                f"  expected {_cell(finding['expected'])},",
                f"  found {_cell(finding['found'])}{within}.",
            ]
        more = len(gate["findings"]) - FINDINGS_SHOWN
        if more > 0:
            lines.append(f"- and {more} more in `{gate['history']}`.")
    return "\n".join(["## What went wrong", "", *lines, ""]) if lines else ""


def not_tested(record: Mapping[str, Any]) -> str:
    """What this run says nothing about."""
    lines = [f"- {_cell(line)}" for line in record["not_tested"]]
    return "\n".join(["## What was not tested", "", *lines, ""]) if lines else ""


def provenance(record: Mapping[str, Any]) -> str:
    """What was judged, by what, on what, and how long each gate took."""
    run, tree, host = record["run"], record["run"]["tree"], record["run"]["host"]
    model = run["model"]
    changed = " with local changes" if tree["dirty"] else ""
    rows = [
        ("commit", f"`{tree['commit'] or 'none'}`{changed}"),
        (
            "model",
            f"{model['file']}, {model['bytes']} bytes, sha256 `{model['sha256']}`"
            if model
            else "served elsewhere",
        ),
        ("profile", f"{record['profile']}, sha256 `{run['profile_sha256']}`"),
        ("seed", str(run["seed"])),
        (
            "host",
            f"{host['processor']}, {host['cpus']} cores, {host['memory_gib']} GiB, "
            f"{host['system']} {host['release']}",
        ),
        ("started", run["started_utc"]),
        (
            "took",
            f"{run.get('seconds', 0):.0f} s in all; "
            + ", ".join(_took(gate) for gate in record["gates"] if gate["history"]),
        ),
    ]
    rows += [(f"`{path}`", f"sha256 `{digest}`") for path, digest in record["history_sha256"].items()]
    return "\n".join(
        ["## What was judged", "", *_header(["what", "which"]), *(_row(list(row)) for row in rows), ""]
    )


def again(record: Mapping[str, Any]) -> str:
    """The command that asks the same again, for each gate that does not hold."""
    lines = [
        f"    {gate['rerun']}" for gate in record["gates"] if gate["verdict"] != "pass" and gate["rerun"]
    ]
    return "\n".join(["## Ask again", "", *lines, ""]) if lines else ""


def _measures(record: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    return ((gate, measure) for gate in record["gates"] for measure in gate["measures"])


def _word(measure: Mapping[str, Any]) -> str:
    return "notice" if measure["notice"] and measure["verdict"] != "pass" else str(measure["verdict"])


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ratio":
        return f"{value * 100:.4g} %"
    return f"{value:.4g}" if unit == "count" else f"{value:.4g} {unit}"


def _interval(measure: Mapping[str, Any]) -> str:
    if not measure["interval"]:
        return "-"
    low, high = measure["interval"]
    return f"{_value(low, measure['unit'])} to {_value(high, measure['unit'])}"


def _took(gate: Mapping[str, Any]) -> str:
    asked = gate["operations"].get("asked", 0)
    return f"{gate['name']} {gate['seconds']:.0f} s for {asked} requests"


def _header(names: list[str]) -> list[str]:
    return [_row(names), _row(["---"] * len(names))]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    """Text on one line that cannot leave its table cell or become markup."""
    flat = "".join(letter if letter.isprintable() else " " for letter in str(text))
    flat = " ".join(flat.split())
    flat = flat if len(flat) <= 400 else flat[:400] + "..."
    for mark in "\\|`*_[":
        flat = flat.replace(mark, "\\" + mark)
    return html.escape(flat, quote=False)


def main(words: list[str]) -> int:
    """Read the verdict file named first, write the Markdown to the file named second or to the output."""
    if len(words) not in (1, 2):
        print("usage: render.py verdict.json [verdict.md]", file=sys.stderr)
        return 2
    text = render(json.loads(Path(words[0]).read_bytes())).encode("utf-8", "replace")
    if len(words) == 2:
        Path(words[1]).write_bytes(text)
    else:
        sys.stdout.buffer.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
