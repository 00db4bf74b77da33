"""Every server that lies to the quality gate is caught by the claims that it breaks; its twin passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates import registry
from gates.harness.verdict import Judgement, Verdict
from gates.quality.items import ItemRecord
from gates.tests.quality.driving import COUNT, SEED, SETS, broken, driven, judged, settings, verdicts
from gates.tests.quality.lying import BREAKS, FAULTS
from gates.tests.quality.scholar import Scholar

OF_TIME = ("honest", "remembers_replies")  # their replies take longer than what a busy host adds


def against(fault: str, folder: Path) -> tuple[list[ItemRecord], Judgement]:
    """The records of the gate against the scholar with this fault, and what the gate says of them."""
    table = settings()
    pace = (
        0.02 if fault == "remembers_replies" else 0.0005
    )  # what it saves must be more than a slow host costs
    scholar = Scholar(SETS, COUNT, seed=SEED, seconds_per_reply_token=pace)
    records = driven(folder, table, FAULTS[fault](scholar))
    return records, judged(folder, table, baseline=records)


def test_the_honest_server_passes(tmp_path: Path) -> None:
    records, judgement = against("honest", tmp_path)

    assert {} == {name: v for name, v in verdicts(judgement).items() if v is not Verdict.PASS}
    assert 2 * len(SETS) * (COUNT + 1) == len(records)
    assert {True, False} == {record.correct for record in records}


@pytest.mark.parametrize("fault", BREAKS)
def test_a_lying_server_is_caught(fault: str, tmp_path: Path) -> None:
    _, judgement = against(fault, tmp_path)

    assert set() == BREAKS[fault] - broken(judgement)


def test_every_fault_that_the_registry_names_is_here_and_the_other_way_round() -> None:
    assert set(FAULTS) - {"honest"} == set(BREAKS) == set(registry.find("quality").faults)
