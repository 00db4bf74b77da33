"""Writes the module table of docs/structure.md: one row a module, in the words of the module's own docstring.

Reads source text only and imports none of it; standard library only.  `nox -s docs` runs it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("engine", "gates", "fixtures", "reports")
OPEN = "<!-- modules: written by `nox -s docs` -->"
CLOSE = "<!-- end of modules -->"


def modules(root: Path) -> Iterator[Path]:
    """Every module that owns something, relative to the root; tests and recorded runs are not listed."""
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py"), key=lambda found: (found.parent, found.name)):
            relative = path.relative_to(root)
            if path.name != "__init__.py" and not {"tests", "runs", "node_modules"} & set(relative.parts):
                yield relative


def sentence(source: str) -> str:
    """The first sentence of a module's docstring, on one line; ValueError if there is none."""
    text = ast.get_docstring(ast.parse(source))
    if not text:
        raise ValueError("the module has no docstring; open it with what it owns and what it does not know")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(".  ")[0].split(". ")[0].rstrip(".:") + "."


def table(root: Path) -> str:
    """The Markdown tables, one per package, in the order of ROOMS."""
    lines: list[str] = []
    package = None
    for path in modules(root):
        if path.parent != package:
            package = path.parent
            lines += ["", f"### {package.as_posix()}/", "", "| module | owns |", "|---|---|"]
        owned = sentence((root / path).read_text(encoding="utf-8")).replace("|", "\\|")
        lines.append(f"| `{path.name}` | {owned} |")
    return "\n".join(lines).strip()


def replaced(document: str, content: str) -> str:
    """The document with what stands between the two marks replaced; ValueError if a mark is missing."""
    before, opened, rest = document.partition(OPEN)
    _, closed, after = rest.partition(CLOSE)
    if not opened or not closed:
        raise ValueError(f"the document needs the line {OPEN!r} and after it the line {CLOSE!r}")
    return f"{before}{OPEN}\n\n{content}\n\n{CLOSE}{after}"


def main() -> int:
    """Rewrite docs/structure.md in place."""
    path = ROOT / "docs" / "structure.md"
    path.write_text(replaced(path.read_text(encoding="utf-8"), table(ROOT)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
