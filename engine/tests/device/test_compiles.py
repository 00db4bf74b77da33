"""Every kernel compiles for cards that are not there: Hopper, and the Blackwell of desktops and the Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("capability", [90, 120, 121])
def test_every_kernel_compiles_and_fits_the_card(capability: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "engine.tests.device.compile_all", str(capability)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
