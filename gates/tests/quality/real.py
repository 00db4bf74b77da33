"""The real question sets, for the tests that need them: only where SPARKGATE_DATA is set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gates.quality.data import Store

FOLDER = os.environ.get("SPARKGATE_DATA") or None

needs_sets = pytest.mark.skipif(
    FOLDER is None, reason="set SPARKGATE_DATA to the question sets (python -m gates data fetch gets them)"
)


def store() -> Store:
    """The store of the real sets."""
    return Store.open(Path(FOLDER or ""))
