"""Every lying server is caught by the needle gate, by the claims that it breaks; its honest twin passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates import registry
from gates.harness.verdict import Judgement, Verdict
from gates.tests.driving import broken
from gates.tests.faults import FAULTS
from gates.tests.needle.driving import BREAKS, judged, settings, verdict
from gates.tests.reader import Reader

SECONDS_PER_TOKEN = {"recomputes_in_secret": 0.0005}  # for others 0.0001: 0.04 s for a cell of 400 tokens
CELLS = {"slower_with_depth": 10, "cuts_stream": 1}  # a slope needs many depths; each cut costs a second


def against(fault: str, folder: Path, *, cells: int = 4, deadline_s: float = 20.0) -> Judgement:
    """What the needle gate says of the small reader with this fault."""
    table = settings(
        {
            "case_set": "faults",
            "tiers_tokens": [400],
            "tier_cells": [cells],
            "tier_order_cells": [min(cells, 2)],
            "tier_absent_cells": [min(cells, 2)],
            "tier_cold_asks": [2],
        }
    )
    backend = FAULTS[fault](Reader(seconds_per_token=SECONDS_PER_TOKEN.get(fault, 0.0001)))
    return judged(backend, folder, table, deadline_s=deadline_s)


def test_the_honest_server_passes(tmp_path: Path) -> None:
    judgement = against("honest", tmp_path, cells=10)

    assert set() == broken(judgement)
    assert Verdict.PASS == verdict(judgement)
    assert () == judgement.findings


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in ("honest", "dies", "hangs")])
def test_a_lying_server_is_caught(fault: str, tmp_path: Path) -> None:
    judgement = against(fault, tmp_path, cells=CELLS.get(fault, 4))

    assert set() == BREAKS[fault] - broken(judgement)
    assert Verdict.FAIL == verdict(judgement)


def test_a_hanging_server_is_caught_although_it_is_healthy(tmp_path: Path) -> None:
    judgement = against("hangs", tmp_path, deadline_s=0.5)

    assert {"needle.unanswered_count"} == broken(judgement)


def test_a_server_that_dies_makes_the_gate_unknown(tmp_path: Path) -> None:
    judgement = against("dies", tmp_path)

    assert set() == broken(judgement)
    assert Verdict.UNKNOWN == verdict(judgement)


def test_every_fault_that_the_registry_names_is_here_and_the_other_way_round() -> None:
    assert set(FAULTS) - {"honest", "dies"} == set(registry.find("needle").faults)
    assert set(BREAKS) == set(registry.find("needle").faults)
