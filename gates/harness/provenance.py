"""Where a run's ingredients come from: commit and tree of the checkout, digests of model and files.

Knows git's command line and sha256, nothing of gates.
"""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Tree:
    """The checkout: commit, digest of the tree, and whether files differ from it; commit None outside git."""

    commit: str | None
    tree: str | None
    dirty: bool

    @property
    def short(self) -> str:
        """Seven letters of the commit for folder names; `nogit` without one."""
        return self.commit[:7] if self.commit else "nogit"


def checkout(root: Path = ROOT) -> Tree:
    """What git says of the checkout at root."""
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return Tree(None, None, dirty=True)
    status = git(root, "status", "--porcelain")
    return Tree(commit, git(root, "rev-parse", "HEAD^{tree}"), dirty=status != "")


def git(root: Path, *words: str) -> str | None:
    """The output of a git command in root, stripped; None when git fails or is not there."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def digest(path: Path) -> str:
    """The sha256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_record(path: Path) -> dict[str, Any]:
    """Name, size and digest of a model file."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}


def tree_record(tree: Tree) -> dict[str, Any]:
    """The checkout as plain values."""
    return asdict(tree)
