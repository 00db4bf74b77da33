"""Servers that lie to the quality gate are caught also before the engine with the embedded model.

Only faults that show whatever the model knows are here; the others are in `test_lying.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gates.harness import launch
from gates.harness.launch import Launched
from gates.target import EMBEDDED
from gates.tests.quality.driving import broken, driven, judged, settings
from gates.tests.quality.lying import BREAKS, FAULTS
from gates.tests.reader import Upstream

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
OF_SKILL = ("wrong_format", "stops_at_a_length")
OF_TIME = ("remembers_replies", "knows_one_seed")  # a shared host is no place for them
SHOWN = [fault for fault in BREAKS if fault not in (*OF_SKILL, *OF_TIME)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the engine with the embedded model."""
    port = launch.free_port()
    command = launch.engine_command().filled(model=EMBEDDED, port=port, context_tokens=8192)
    log = tmp_path_factory.mktemp("engine") / "server.log"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Launched.start(command, port=port, log=log, start_s=120, stop_s=10, env=env) as server:
        yield server.base_url


def claims(fault: str, engine: str, folder: Path) -> set[str]:
    """The claims that the engine breaks behind this fault."""
    table = settings(
        sets=["mini_two_steps"],  # long enough: of 11 tokens half as many again are within the slack
        fast_margins=[0.9],
        thinking_margins=[0.9],
        fast_items=[2],
        thinking_items=[2],
        fast_min_scores=[0.0],
        thinking_min_scores=[0.0],
        fast_mean_tokens=[0],
        thinking_mean_tokens=[0],
        fast_max_tokens=48,
        thinking_max_tokens=48,
        twice_items=0,
        honesty_items=2,
    )
    driven(folder, table, FAULTS[fault](Upstream(engine)))
    return broken(judged(folder, table))


def test_the_engine_itself_is_honest(engine: str, tmp_path: Path) -> None:
    found = claims("honest", engine, tmp_path)
    lies = {claim for fault in SHOWN for claim in BREAKS[fault]}

    assert set() == found & lies


@pytest.mark.parametrize("fault", SHOWN)
def test_a_lying_server_before_the_engine_is_caught(fault: str, engine: str, tmp_path: Path) -> None:
    assert set() == BREAKS[fault] - claims(fault, engine, tmp_path)
