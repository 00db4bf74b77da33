"""What a judged run leaves behind and says: verdict file, Markdown, JUnit, Allure results, the last lines.

Knows the order in which the files are written; their forms live in `harness`, that of the Markdown in
`reports`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from gates.errors import ExitCode
from gates.harness import allure, junit, provenance, record
from gates.harness.progress import STYLES
from gates.harness.record import RunFolder, State
from gates.harness.verdict import RunVerdict, Verdict, as_record, shown, summary_line
from gates.spec import SIGNS
from reports import facts, render

LOG_BYTES, LOG_LINES = 16_384, 12


def write(folder: RunFolder, verdict: RunVerdict) -> dict[str, Any]:
    """Write every file that follows from the verdict; the verdict file itself comes last but its Markdown."""
    allure.write(folder, verdict)
    content = sealed(folder, verdict)
    record.write_whole(folder.junit_xml, junit.document(content))
    record.write_json(folder.details_json, details(verdict))
    record.write_json(folder.verdict_json, content)
    record.write_whole(folder.verdict_md, render.render(content))
    return content


def details(verdict: RunVerdict) -> dict[str, Any]:
    """The drawings and titled tables of each gate, for the first screen of the HTML report."""
    found = {gate.name: gate.judgement for gate in verdict.gates}
    return {
        name: {
            "pictures": [asdict(picture) for picture in judgement.pictures],
            "tables": [asdict(table) for table in judgement.tables if table.title],
        }
        for name, judgement in found.items()
    }


def sealed(folder: RunFolder, verdict: RunVerdict) -> dict[str, Any]:
    """The verdict file's content, with the digests of the histories and items from which it was judged."""
    paths = [path for gate in verdict.gates for path in (folder.history(gate.name), folder.items(gate.name))]
    digests = {
        path.relative_to(folder.path).as_posix(): provenance.digest(path) for path in paths if path.is_file()
    }
    return as_record(verdict) | {"history_sha256": digests}


def exit_code(verdict: Verdict) -> ExitCode:
    """The exit code that a verdict ends a command with."""
    return {Verdict.PASS: ExitCode.PASS, Verdict.FAIL: ExitCode.FAIL}.get(verdict, ExitCode.UNKNOWN)


def show(
    folder: RunFolder, content: Mapping[str, Any], console: Console, *, page_follows: bool = False
) -> None:
    """Print the table of claims and where the files are; the caller prints the verdict as the last line.

    `page_follows`: the caller says where the HTML report is, so nobody is told how to make it.
    """
    if not _without_server(content):
        console.print(_grid(content))
    for gate in content["gates"]:
        if gate["verdict"] != "pass" and gate["rerun"]:
            console.print(f"ask {gate['name']} again: {gate['rerun']}", markup=False, soft_wrap=True)
    _show_log(folder, content, console)
    console.print(f"record, verdict.json, verdict.md: {folder.path}", markup=False, soft_wrap=True)
    if not page_follows:
        console.print(f"HTML report: python -m gates report {folder.path.name}", markup=False, soft_wrap=True)


def _without_server(content: Mapping[str, Any]) -> bool:
    """Whether the run ended before any gate began: the last line says why, and no claim can say more."""
    stopped = content["run"]["state"] == State.INFRASTRUCTURE
    return stopped and all(gate["history"] is None for gate in content["gates"])


def last_line(content: Mapping[str, Any], console: Console) -> None:
    """Print what the verdict allows, and last the verdict in one line that begins with its word."""
    word, _, rest = summary_line(content).partition(":")
    console.print(facts.answer(content), markup=False, highlight=False, soft_wrap=True)
    console.print(Text(word, style=STYLES[Verdict(content["verdict"])]) + Text(":" + rest), soft_wrap=True)


def _show_log(folder: RunFolder, content: Mapping[str, Any], console: Console) -> None:
    """The end of the server's log, when the run is no pass and there is one."""
    if content["verdict"] == "pass" or not folder.server_log.is_file():
        return
    lines = folder.server_log.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace").splitlines()[-LOG_LINES:]
    if lines:
        console.print(f"the end of {folder.server_log.name}:", markup=False)
        console.print("\n".join(lines), style="dim", markup=False, highlight=False, soft_wrap=True)


def _grid(content: Mapping[str, Any]) -> Grid:
    grid = Grid("verdict", "claim", "value", "limit", "n", box=None, pad_edge=False)
    for gate in content["gates"]:
        for measure in gate["measures"]:
            value = shown(measure["value"], measure.get("estimate"), measure.get("judged", ""), digits=4)
            limit = f"{SIGNS[measure['better']]} {measure['limit']:g}"
            style = "yellow" if facts.aside(measure) else STYLES[Verdict(measure["verdict"])]
            claim = measure["id"] + facts.aside(measure)
            grid.add_row(Text(facts.mark(measure), style=style), claim, value, limit, str(measure["n"]))
    return grid
