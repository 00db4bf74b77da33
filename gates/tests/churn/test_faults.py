"""Every server that lies about memory is caught by the churn gate, by the claims that it breaks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gates import registry
from gates.harness.probe import Memory
from gates.harness.verdict import Judgement, Verdict
from gates.profile import Value
from gates.tests.budget_faults import FAULTS, Leaks
from gates.tests.churn.driving import BREAKS, judged, settings
from gates.tests.driving import broken
from gates.tests.keeper import Keeper

pytestmark = pytest.mark.usefixtures("short_probe")
BUDGET_TOKENS = 6000  # the deep conversation, a cold one, three clients, and one or two of a storm


def against(fault: str, folder: Path, *, deadline_s: float = 60.0, **changes: Value) -> Judgement:
    """What the churn gate says of the small keeper with this fault."""
    keeper = Keeper(budget_tokens=BUDGET_TOKENS, seconds_per_token=0.0002, seconds_per_reply_token=0.001)
    backend = FAULTS[fault](keeper)

    def memory() -> Memory:
        leaked = len(backend.leaked) if isinstance(backend, Leaks) else 0
        return Memory((64 + leaked) << 20, 0)

    return judged(backend, folder, settings({"deadline_s": deadline_s, **changes}), memory=memory)


def test_the_honest_server_passes(tmp_path: Path) -> None:
    judgement = against("honest", tmp_path, max_warm_ttft_ratio=10.0)  # other tests take its time
    verdicts = {measure.id: (measure.verdict, measure.value, measure.note) for measure in judgement.measures}

    assert () == judgement.findings
    assert {} == {name: found for name, found in verdicts.items() if found[0] is not Verdict.PASS}


@pytest.mark.parametrize("fault", [name for name in BREAKS if name != "deadlocks_when_full"])
def test_a_lying_server_is_caught(fault: str, tmp_path: Path) -> None:
    judgement = against(fault, tmp_path)

    assert set() == BREAKS[fault] - broken(judgement)


def test_a_server_that_is_stuck_is_caught_in_bounded_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    judgement = against("deadlocks_when_full", tmp_path, deadline_s=0.7)

    assert BREAKS["deadlocks_when_full"] <= broken(judgement)
    assert time.monotonic() - begun < 30


def test_every_fault_that_the_registry_names_is_here_and_the_other_way_round() -> None:
    assert set(BREAKS) == set(registry.find("churn").faults)
    assert set(BREAKS) <= set(FAULTS)
