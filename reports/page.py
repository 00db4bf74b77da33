"""Renders a verdict as the first screen of the HTML report: one fragment with its style, fetching nothing.

Knows the forms of the verdict file and of the details beside it, and nothing else of this repository.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from reports import facts
from reports.facts import Record

FINDINGS_SHOWN = 8
ROWS_SHOWN, SHORT_TEXT, LONG_TEXT, TEXT_SHOWN = 50, 24, 60, 4000

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
#front td[data-name=interval] { white-space:normal; min-width:11em; max-width:16em; }
#front td.word { font-weight:700; white-space:nowrap; }
#front code, #front pre { font:12.5px/1.4 ui-monospace,monospace; overflow-wrap:anywhere;
  white-space:pre-wrap; }
#front small { color:var(--dim); display:block; }
#front .wide { overflow-x:auto; } #front figure { margin:0; } #front svg { max-width:100%; height:auto; }
#front details details { margin:14px 0 0; } #front .rows td { min-width:3em; }
#front .rows .text { min-width:12em; }
#front .rows pre { min-width:300px; max-height:360px; overflow:auto; margin:0; }
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


def fragment(record: Record, details: Mapping[str, Any] | None = None) -> str:
    """The whole fragment, with the drawings and tables of the details; ValueError for another schema."""
    facts.checked(record)
    parts = [
        f"<p>{_gates(record)}</p>",
        _untested(record),
        _list(record["reasons"]),
        _claims(record),
        *_pictures(details or {}),
        _section(facts.findings_title(record), _list(_findings(record))),
        *_tables(details or {}),
        _section("What was judged", _table(_provenance(record))),
        _section("Ask again", _again(record)),
    ]
    shown = f"<details open>{opening(record)}{''.join(parts)}</details>"
    return f'<section id="front"><style>{STYLE}</style>{shown}</section>'


def opening(record: Record) -> str:
    """The head of the fragment, by which a page is known: verdict, what it allows, and whose it is."""
    head = f'<h1 class="{record["verdict"]}">{_text(facts.headline(record))}</h1>'
    about = f"<small>{_text(facts.about(record))}</small>"
    return f"<summary>{head}</summary><p><b>{_text(facts.answer(record))}</b>{about}</p>"


def _gates(record: Record) -> str:
    return " · ".join(
        f'<span class="{gate["verdict"]}">{_text(facts.gate_line(gate))}</span>' for gate in record["gates"]
    )


def _untested(record: Record) -> str:
    """On the first screen, folded: how much a pass says nothing about."""
    lines = record["not_tested"]
    topics = _text("; ".join(_topic(line) for line in lines))
    summary = f"<summary>What was not tested ({len(lines)}): {topics}</summary>"
    return f"<details>{summary}{_list(lines)}</details>" if lines else ""


def _topic(line: str) -> str:
    return line.partition(":")[0].partition(" (")[0]


def _pictures(details: Mapping[str, Any]) -> list[str]:
    """The drawings of every gate; they come from our own writer, with every text in them escaped."""
    return [
        _section(_text(picture["title"]), f'<figure class="wide">{picture["svg"]}</figure>')
        for gate in details.values()
        for picture in gate["pictures"]
    ]


def _tables(details: Mapping[str, Any]) -> list[str]:
    """The tables of every gate, folded; long texts side by side keep their line breaks."""
    return [_rows(table) for gate in details.values() for table in gate["tables"] if table["rows"]]


def _rows(table: Record) -> str:
    shown, header = table["rows"][:ROWS_SHOWN], table["header"]
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in shown)
    more = len(table["rows"]) - len(shown)
    left = f"<p>and {more} more, in {_text(table['name'])}.csv below</p>" if more > 0 else ""
    summary = f"<summary><b>{_text(table['title'])}</b> ({len(table['rows'])})</summary>"
    rows = f'<div class="wide"><table class="rows"><tr>{head}</tr>{body}</table></div>'
    return f"<details{' open' if table['open'] else ''}>{summary}{rows}{left}</details>"


def _cell(value: object) -> str:
    if value is None:
        return "<td>-</td>"
    if isinstance(value, float):
        return f'<td class="number">{value:.4g}</td>'
    text = str(value)
    if len(text) <= LONG_TEXT and "\n" not in text:
        return (
            f"<td>{_text(text)}</td>" if len(text) <= SHORT_TEXT else f'<td class="text">{_text(text)}</td>'
        )
    cut = text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}\n... ({len(text)} characters)"
    return f"<td><pre>{_text(cut)}</pre></td>"


def _claims(record: Record) -> str:
    rows = facts.broken_first(record)
    baseline = any(m["baseline"] is not None for m in rows)
    names = [
        "",
        "claim",
        "value",
        "95 % interval",
        "limit",
        "n",
        *(["baseline", "change"] if baseline else []),
    ]
    body = "".join(_claim(m, baseline=baseline) for m in rows)
    head = "".join(f"<th>{name}</th>" for name in names)
    return _section("Claims", f'<div class="wide claims"><table><tr>{head}</tr>{body}</table></div>')


def _claim(measure: Mapping[str, Any], *, baseline: bool) -> str:
    word, unit = facts.word(measure), measure["unit"]
    sign = "&ge;" if measure["better"] == "higher" else "&le;"
    note = f"<small>{_text(measure['note'])}</small>" if measure["note"] else ""
    numbers = [
        facts.found(measure),
        facts.interval(measure),
        f"{sign} {facts.value(measure['limit'], unit)}",
    ]
    numbers.append(str(measure["n"]))
    if baseline:
        numbers += [facts.value(measure["baseline"], unit), _change(measure)]
    names = ("value", "interval", "limit", "n", "baseline", "change")
    cells = "".join(
        f'<td class="number" data-name="{name}">{number}</td>'
        for name, number in zip(names, numbers, strict=False)  # the last two names only with a baseline
    )
    title = f"{_text(measure['title'])} <code>{_text(measure['id'])}</code>{facts.aside(measure)}{note}"
    return f'<tr><td class="word {word}">{word.upper()}</td><td>{title}</td>{cells}</tr>'


def _findings(record: Mapping[str, Any]) -> list[str]:
    found = [finding for gate in record["gates"] for finding in gate["findings"]]
    held = {m["id"] for m in facts.measures(record) if m["verdict"] == "pass"}
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


def _again(record: Record) -> str:
    lines = facts.again(record)
    return f"<pre>{_text(chr(10).join(lines))}</pre>" if lines else ""


def _change(measure: Record) -> str:
    if measure["value"] is None or measure["baseline"] is None:
        return "-"
    change = measure["value"] - measure["baseline"]  # both are what was judged
    return ("+" if change >= 0 else "") + facts.value(change, measure["unit"])


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
