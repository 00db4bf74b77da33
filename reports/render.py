"""Renders a verdict as Markdown.

Knows the verdict file's form and nothing else of this repository.
"""

from __future__ import annotations

import html

from reports import facts
from reports.facts import Record

FINDINGS_SHOWN = 10
SIGNS = {"higher": "≥", "lower": "≤"}


def render(record: Record) -> str:
    """The whole Markdown text; ValueError when the record is of another schema."""
    facts.checked(record)
    parts = [
        head(record),
        not_tested(record),
        claims(record),
        findings(record),
        provenance(record),
        again(record),
    ]
    return "\n".join(part for part in parts if part)


def head(record: Record) -> str:
    """The verdict in one line, with its reasons."""
    lines = [f"# {facts.headline(record)}", "", facts.answer(record), ""]
    lines += [_cell(facts.about(record)), "", ", ".join(map(facts.gate_line, record["gates"])) + ".", ""]
    lines += [f"- {_cell(reason)}" for reason in record["reasons"]]
    return "\n".join(lines) + ("\n" if record["reasons"] else "")


def claims(record: Record) -> str:
    """The table of claims, broken ones first."""
    header = ["verdict", "claim", "value", "95 % interval", "limit", "n"]
    rows = facts.broken_first(record)
    with_baseline = any(measure["baseline"] is not None for measure in rows)
    lines = ["## Claims", "", *_header([*header, "baseline"] if with_baseline else header)]
    for measure in rows:
        row = [
            facts.mark(measure),
            f"{_cell(measure['title'])} (`{measure['id']}`){facts.aside(measure)}",
            facts.found(measure),
            facts.interval(measure),
            f"{SIGNS[measure['better']]} {facts.value(measure['limit'], measure['unit'])}",
            str(measure["n"]),
        ]
        lines.append(
            _row([*row, facts.value(measure["baseline"], measure["unit"])] if with_baseline else row)
        )
    notes = [f"- `{m['id']}`: {_cell(m['note'])}" for m in rows if m["note"]]
    return "\n".join([*lines, "", *notes, ""] if notes else [*lines, ""])


def findings(record: Record) -> str:
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
    return "\n".join([f"## {facts.findings_title(record)}", "", *lines, ""]) if lines else ""


def not_tested(record: Record) -> str:
    """What this run says nothing about."""
    lines = [f"- {_cell(line)}" for line in record["not_tested"]]
    return "\n".join(["## What was not tested", "", *lines, ""]) if lines else ""


def provenance(record: Record) -> str:
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


def again(record: Record) -> str:
    """The command that asks the same again, for each gate that does not hold."""
    lines = [f"    {command}" for command in facts.again(record)]
    return "\n".join(["## Ask again", "", *lines, ""]) if lines else ""


def _took(gate: Record) -> str:
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
