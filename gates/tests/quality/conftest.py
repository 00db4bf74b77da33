"""One sandbox for the tests that run programs."""

from __future__ import annotations

import os

import pytest

from gates.errors import InfrastructureError
from gates.quality.sandbox import Sandbox, find_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox of this host; in CI it must be there, elsewhere its tests are skipped without it."""
    try:
        return find_sandbox()
    except InfrastructureError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
