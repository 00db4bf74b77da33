"""Renders a verdict file as the first screen of the HTML report: `python reports/page.py verdict.json`.

Prints one HTML fragment with its own style, to stand at the top of a page. Knows the verdict file's form
(schema 1) and nothing else of this repository; standard library only; fetches nothing.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
ANSWERS = {
    "pass": ("PASS", "Every claim of this profile holds."),
    "fail": ("FAIL", "At least one claim is broken: do not ship."),
    "unknown": ("UNKNOWN", "Nobody can tell: do not ship on this run."),
}
ORDER = {"fail": 0, "unknown": 1, "notice": 2, "pass": 3}
FINDINGS_SHOWN = 8

STYLE = """
#front { --bad:#b3261e; --good:#146c2e; --odd:#8a5a00; --line:#d5dae1; --dim:#5a6472;
  font:15px/1.45 system-ui,sans-serif; color:#1b1f24; background:#fff; max-width:1080px; margin:16px auto;
  padding:20px 24px; border-radius:8px; box-sizing:border-box; }
#front h1 { font-size:26px; font-weight:700; margin:0; display:inline; }
#front b { font-weight:700; }
#front summary { cursor:pointer; list-style-position:outside; }
#front h2 { font-size:16px; font-weight:700; margin:22px 0 6px; }
#front .pass { color:var(--good); } #front .fail { color:var(--bad); }
#front .unknown, #front .notice { color:var(--odd); }
#front p, #front ul { margin:8px 0; } #front ul { padding-left:20px; list-style:disc; }
#front table { border-collapse:collapse; width:100%; font-size:14px; }
#front th { text-align:left; color:var(--dim); font-weight:600; }
#front th, #front td { padding:5px 10px 5px 0; border-bottom:1px solid var(--line); vertical-align:top; }
#front td.number { white-space:nowrap; font-variant-numeric:tabular-nums; }
#front td.word { font-weight:700; white-space:nowrap; }
#front code, #front pre { font:12.5px/1.4 ui-monospace,monospace; overflow-wrap:anywhere;
  white-space:pre-wrap; }
#front small { color:var(--dim); display:block; }
#front .wide { overflow-x:auto; }
@media (prefers-color-scheme: dark) { #front { --bad:#ff897d; --good:#7fd694; --odd:#f0bf6a; --line:#3a414b;
  --dim:#a2acb9; color:#e6e9ee; background:#1c2127; } }
@media (max-width:640px) { #front { padding:14px; margin:0; border-radius:0; } #front h1 { font-size:21px; }
  #front .claims tr { display:block; padding:6px 0; border-bottom:1px solid var(--line); }
  #front .claims td { display:block; border:0; padding:1px 0; }
  #front .claims tr:first-child { display:none; }
  #front .claims td.number { display:inline-block; margin-right:14px; font-size:13px; }
  #front .claims td.number::before { content:attr(data-name) " "; color:var(--dim); } }
@media print { #front { max-width:none; padding:0; } body > :not(#front) { display:none; } }
"""


def fragment(record: Mapping[str, Any]) -> str:
    """The whole fragment; ValueError when the record is of another schema."""
    if record.get("schema") != SCHEMA:
        raise ValueError(f"verdict schema is {record.get('schema')!r}, this page reads {SCHEMA}")
    word, sentence = ANSWERS[record["verdict"]]
    claims = [m for _, m in _measures(record) if not m["notice"]]
    held = sum(m["verdict"] == "pass" for m in claims)
    head = f"{word}: profile {record['profile']}, {held} of {len(claims)} claims hold"
    parts = [
        f"<p><b>{_text(sentence)}</b></p>",
        _list(record["reasons"]),
        _claims(record),
        _section("What went wrong", _list(_findings(record))),
        _section("What was not tested", _list(record["not_tested"])),
        _section("What was judged", _table(_provenance(record))),
        _section("Ask again", _again(record)),
    ]
    opening = f'<details open><summary><h1 class="{record["verdict"]}">{_text(head)}</h1></summary>'
    return f'<section id="front"><style>{STYLE}</style>{opening}{"".join(parts)}</details></section>'


def _claims(record: Mapping[str, Any]) -> str:
    rows = sorted(_measures(record), key=lambda row: ORDER[_word(row[1])])
    baseline = any(m["baseline"] is not None for _, m in rows)
    names = [
        "",
        "claim",
        "value",
        "95 % interval",
        "limit",
        "n",
        *(["baseline", "change"] if baseline else []),
    ]
    body = "".join(_claim(m, baseline=baseline) for _, m in rows)
    head = "".join(f"<th>{name}</th>" for name in names)
    return _section("Claims", f'<div class="wide claims"><table><tr>{head}</tr>{body}</table></div>')


def _claim(measure: Mapping[str, Any], *, baseline: bool) -> str:
    word, unit = _word(measure), measure["unit"]
    sign = "&ge;" if measure["better"] == "higher" else "&le;"
    note = f"<small>{_text(measure['note'])}</small>" if measure["note"] else ""
    numbers = [_value(measure["value"], unit), _interval(measure), f"{sign} {_value(measure['limit'], unit)}"]
    numbers.append(str(measure["n"]))
    if baseline:
        numbers += [_value(measure["baseline"], unit), _change(measure)]
    names = ("value", "interval", "limit", "n", "baseline", "change")
    cells = "".join(
        f'<td class="number" data-name="{name}">{number}</td>'
        for name, number in zip(names, numbers, strict=False)  # the last two names only with a baseline
    )
    title = f"{_text(measure['title'])} <code>{_text(measure['id'])}</code>{note}"
    return f'<tr><td class="word {word}">{word.upper()}</td><td>{title}</td>{cells}</tr>'


def _findings(record: Mapping[str, Any]) -> list[str]:
    found = [finding for gate in record["gates"] for finding in gate["findings"]]
    held = {m["id"] for _, m in _measures(record) if m["verdict"] == "pass"}
    lines = [
        f"{f['measure']} at {f['where']}: expected {_short(f['expected'])}, found {_short(f['found'])}"
        + (" (within its limit)" if f["measure"] in held else "")
        for f in found[:FINDINGS_SHOWN]
    ]
    more = len(found) - FINDINGS_SHOWN
    return [*lines, f"and {more} more, under each claim below"] if more > 0 else lines


def _provenance(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    run, tree, host = record["run"], record["run"]["tree"], record["run"]["host"]
    model = run["model"]
    took = [
        f"{g['name']} {g['seconds']:.0f} s ({g['operations'].get('asked', 0)} requests)"
        for g in record["gates"]
        if g["history"]
    ]
    return [
        ("commit", (tree["commit"] or "none") + (" with local changes" if tree["dirty"] else "")),
        (
            "model",
            f"{model['file']}, sha256 {model['sha256']}" if model else "served elsewhere, digest unknown",
        ),
        ("profile", f"{record['profile']}, sha256 {run['profile_sha256']}"),
        ("seed", str(run["seed"])),
        ("host", f"{host['processor']}, {host['cpus']} cores, {host['memory_gib']} GiB"),
        ("when", f"{run['started_utc']}, {run.get('seconds', 0):.0f} s in all: {', '.join(took)}"),
    ]


def _again(record: Mapping[str, Any]) -> str:
    lines = [gate["rerun"] for gate in record["gates"] if gate["verdict"] != "pass" and gate["rerun"]]
    return f"<pre>{_text(chr(10).join(lines))}</pre>" if lines else ""


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
    return " to ".join(_value(end, measure["unit"]) for end in measure["interval"])


def _change(measure: Mapping[str, Any]) -> str:
    if measure["value"] is None or measure["baseline"] is None:
        return "-"
    change = measure["value"] - measure["baseline"]
    return ("+" if change >= 0 else "") + _value(change, measure["unit"])


def _section(title: str, body: str) -> str:
    return f"<h2>{title}</h2>{body}" if body else ""


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _table(rows: list[tuple[str, str]]) -> str:
    body = "".join(
        f"<tr><td>{_text(name)}</td><td><code>{_text(value)}</code></td></tr>" for name, value in rows
    )
    return f"<table>{body}</table>"


def _short(text: str) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= 160 else flat[:160] + "..."


def _text(text: str) -> str:
    return html.escape(str(text))


def main(words: list[str]) -> int:
    """Print the fragment of the verdict file named."""
    if len(words) != 1:
        print("usage: page.py verdict.json", file=sys.stderr)
        return 2
    text = fragment(json.loads(Path(words[0]).read_bytes()))
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
