"""The documents against the code: what they name exists, and what exists is named.

Reads files as text; imports from the project only what holds the facts.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fixtures.tiny.spec import TINY
from gates import profile, registry
from reports import structure

ROOT = Path(__file__).parents[2]
GUIDES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
PROFILES = ("ci", "nightly", "candidate", "release")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pyproject() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))


def sessions() -> dict[str, str]:
    """Session name to docstring, from the text of noxfile.py."""
    found = {}
    for node in ast.parse(read("noxfile.py")).body:
        if isinstance(node, ast.FunctionDef) and any(
            "nox.session" in ast.unparse(d) for d in node.decorator_list
        ):
            found[node.name] = ast.get_docstring(node) or ""
    return found


def rows(text: str, first_cell: str) -> list[list[str]]:
    """Cells of the Markdown table rows whose first cell fits the pattern."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return [row for row in cells if re.fullmatch(first_cell, row[0])]


def listed_modules() -> set[str]:
    """Paths of the modules in the tables of docs/structure.md, each under the heading of its package."""
    found = set()
    for part in read("docs/structure.md").split("\n### ")[1:]:
        package = part.partition("/\n")[0]
        found |= {f"{package}/{name}" for name in re.findall(r"^\| `(\w+\.py)` \|", part, re.MULTILINE)}
    return found


def test_the_map_names_every_module_and_no_other() -> None:
    assert listed_modules() == {path.as_posix() for path in structure.modules(ROOT)}, "run `nox -s docs`"


def test_readme_sessions_are_those_of_the_noxfile() -> None:
    shared = {"workshop", "desk"}  # environments, not jobs
    named = {
        row[0].strip("`") for row in rows(read("README.md"), r"`[a-z]+`") if row[0].strip("`") in sessions()
    }

    assert set(sessions()) - shared == named


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_nox_session_that_a_document_names_exists(guide: Path) -> None:
    named = re.findall(r"nox -s ([a-z]+)", guide.read_text(encoding="utf-8"))

    assert set() == set(named) - set(sessions())


def test_every_session_has_a_one_line_docstring_and_fewer_than_thirty_lines() -> None:
    lengths = {
        node.name: (node.end_lineno or 0) - node.lineno
        for node in ast.parse(read("noxfile.py")).body
        if isinstance(node, ast.FunctionDef)
    }

    assert {} == {name: text for name, text in sessions().items() if not text or "\n" in text}
    assert {} == {name: lines for name, lines in lengths.items() if lines >= 30}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_of_a_document_leads_to_a_file(guide: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", guide.read_text(encoding="utf-8"))

    assert [] == [target for target in targets if not (guide.parent / target).exists()]


def test_every_section_of_the_model_document_that_code_cites_exists() -> None:
    headings = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", read("docs/model.md"), re.MULTILINE))
    cited = {
        (path.as_posix(), section)
        for path in structure.modules(ROOT)
        for section in re.findall(
            r"docs/model\.md,\s+(\d+(?:\.\d+)?)", (ROOT / path).read_text(encoding="utf-8")
        )
    }

    assert set() == {place for place in cited if place[1] not in headings}


def test_the_model_document_knows_the_numbers_of_the_tiny_model() -> None:
    expected = {
        "layers": f"{TINY.n_layer}",
        "hidden width `C`": f"{TINY.hidden}",
        "vocabulary": f"{TINY.vocab:,}",
        "heads `H` / row width `D` / rotated part `Dr`": f"{TINY.n_head} / {TINY.head_dim} / {TINY.rope_dim}",
        "low rank of the query": f"{TINY.q_rank}",
        "output groups / rank of a group": f"{TINY.o_groups} / {TINY.o_rank}",
        "residual streams / Sinkhorn iterations": f"{TINY.hc_count} / {TINY.hc_iterations}",
        "window `W`": f"{TINY.window}",
        "ratios by layer": ", ".join(str(ratio) for ratio in TINY.ratios),
        "index heads / width / rows chosen": f"{TINY.index_heads} / {TINY.index_dim} / {TINY.index_topk}",
        "experts / used / shared": f"{TINY.n_expert} / {TINY.n_expert_used} / {TINY.n_expert_shared}",
        "expert width `F`": f"{TINY.expert_width}",
        "largest context": f"{TINY.context_length:,}",
    }
    table = {row[0]: row[-1] for row in rows(read("docs/model.md"), r"[a-z].*") if len(row) == 4}

    assert expected == {name: table.get(name) for name in expected}


def test_every_measure_and_fault_gate_is_explained() -> None:
    text = read("docs/gates.md")
    measures = [measure.id for gate in (registry.RUN, *registry.GATES) for measure in gate.measures]

    assert [] == [name for name in measures if f"`{name}`" not in text]


@pytest.mark.parametrize("column", range(1, 4))
def test_time_budgets_of_the_document_are_those_of_the_profiles(column: int) -> None:
    settings = profile.load(PROFILES[column - 1])
    table = {
        row[0]: float(row[column])
        for row in rows(read("docs/gates.md"), r"[a-z]+")
        if len(row) == 5 and row[0] != "gate"
    }
    total = float(rows(read("docs/gates.md"), r"\*\*all\*\*")[0][column].strip("*"))
    names = [gate.name for gate in settings.gates]
    budgets = {name: settings.table(name).number("budget_minutes") for name in names}

    assert budgets == {name: table[name] for name in budgets}
    assert total == settings.table("run").number("budget_minutes")
    assert sum(table.values()) <= total


def test_every_dependency_is_explained_and_pinned() -> None:
    project = pyproject()["project"]
    extras, groups = project["optional-dependencies"], pyproject()["dependency-groups"]
    wanted = [*project["dependencies"], *chain.from_iterable([*extras.values(), *groups.values()])]
    names = {re.split(r"[<>=!~ \[]", one)[0] for one in wanted if isinstance(one, str)}
    pinned = {line.split("==")[0].lower() for line in read("constraints.txt").splitlines() if "==" in line}

    assert set() == {name for name in names if f"`{name}`" not in read("docs/dependencies.md")}
    assert set() == {name for name in names if name.lower() not in pinned}


def test_console_commands_are_functions_that_exist() -> None:
    for target in pyproject()["project"]["scripts"].values():
        module, _, function = target.partition(":")
        source = read(module.replace(".", "/") + ".py")

        assert function in {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("module", ["engine", "gates"])
def test_subcommands_that_documents_name_exist(module: str) -> None:
    text = "\n".join(guide.read_text(encoding="utf-8") for guide in GUIDES)
    named = set(re.findall(rf"(?:python -m |bin/|`){module} ([a-z]+)", text))
    shown = subprocess.run(
        [sys.executable, "-m", f"{module}", "--help"], capture_output=True, text=True, cwd=ROOT
    )

    assert 0 == shown.returncode, shown.stderr
    assert set() == {name for name in named if not re.search(rf"\b{name}\b", shown.stdout)}


@pytest.mark.parametrize(
    ("program", "pattern"),
    [
        pytest.param("engine", r"bin/engine ([a-z]+)(.*)", id="engine"),
        pytest.param("gates", r"nox -s (gates|judge|report|tag|baseline) -- (.*)", id="gates"),
    ],
)
def test_options_that_the_readme_uses_exist(program: str, pattern: str) -> None:
    used: dict[str, set[str]] = {}
    for command, rest in re.findall(pattern, read("README.md")):
        command = command.replace("gates", "run")  # the session's name of the command
        used.setdefault(command, set()).update(re.findall(r"(?<=\s)--[a-z-]+", f" {rest}"))

    assert used
    for command, options in used.items():
        words = [sys.executable, "-m", program, command, "--help"]
        shown = subprocess.run(words, capture_output=True, text=True, cwd=ROOT).stdout

        assert set() == {option for option in options if option not in shown}, command
