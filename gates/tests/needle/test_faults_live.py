"""Every lying server is caught also in front of the engine with the embedded model; its twin passes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gates.harness import launch
from gates.harness.launch import Launched
from gates.harness.verdict import Judgement
from gates.target import EMBEDDED
from gates.tests.driving import broken
from gates.tests.faults import FAULTS
from gates.tests.needle.driving import BREAKS, judged, settings
from gates.tests.reader import Upstream

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
DEADLINES = {"hangs": 2.0}
OTHERS = ("honest", "dies", "slower_with_depth")  # the last needs a quiet host


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the engine with the embedded model."""
    port = launch.free_port()
    command = launch.engine_command().filled(model=EMBEDDED, port=port, context_tokens=8192)
    log = tmp_path_factory.mktemp("engine") / "server.log"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Launched.start(command, port=port, log=log, start_s=120, stop_s=10, env=env) as server:
        yield server.base_url


def against(fault: str, engine: str, folder: Path) -> Judgement:
    """What the needle gate says of the engine behind this fault."""
    table = settings(
        {
            "case_set": f"live-{fault}",  # texts of its own: the engine keeps those of the tests before
            "tiers_tokens": [1024],
            "tier_cells": [3],
            "tier_order_cells": [0],
            "tier_absent_cells": [1],
            "tier_cold_asks": [1],
            "ttft_noise_s": 0.3,
            "max_ttft_spread_ratio": 100.0,  # the host may have other work
        }
    )
    return judged(FAULTS[fault](Upstream(engine)), folder, table, deadline_s=DEADLINES.get(fault, 300.0))


def test_the_engine_itself_passes(engine: str, tmp_path: Path) -> None:
    assert set() == broken(against("honest", engine, tmp_path))


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in OTHERS])
def test_a_lying_server_before_the_engine_is_caught(fault: str, engine: str, tmp_path: Path) -> None:
    assert set() != BREAKS[fault] & broken(against(fault, engine, tmp_path))


def test_a_server_that_dies_before_the_engine_breaks_no_claim(engine: str, tmp_path: Path) -> None:
    assert set() == broken(against("dies", engine, tmp_path))
