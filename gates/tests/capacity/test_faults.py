"""Every server that lies about memory is caught by the capacity gate, by the claims that it breaks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gates import registry
from gates.capacity.drive import FILLED
from gates.harness import history
from gates.harness.verdict import Judgement, Verdict
from gates.profile import Value
from gates.tests.budget_faults import FAULTS, Counting, Honest
from gates.tests.capacity.driving import BREAKS, judged, settings
from gates.tests.driving import broken
from gates.tests.keeper import Keeper

pytestmark = pytest.mark.usefixtures("short_probe")


def against(fault: str, folder: Path, *, deadline_s: float = 60.0, **changes: Value) -> Judgement:
    """What the capacity gate says of the small keeper with this fault."""
    return judged(FAULTS[fault](keeper()), folder, settings({"deadline_s": deadline_s, **changes}))


def keeper() -> Keeper:
    """The small honest server: its budget holds a probe, two deep conversations and three fillers."""
    return Keeper(budget_tokens=4400, seconds_per_token=0.0003, seconds_per_reply_token=0.01)


def test_the_honest_server_passes(tmp_path: Path) -> None:
    judgement = against("honest", tmp_path, max_warm_ttft_ratio=10.0)  # other tests take its time
    verdicts = {measure.id: (measure.verdict, measure.value, measure.note) for measure in judgement.measures}

    assert () == judgement.findings
    assert {} == {name: found for name, found in verdicts.items() if found[0] is not Verdict.PASS}


@pytest.mark.parametrize("fault", [name for name in BREAKS if name != "deadlocks_when_full"])
def test_a_lying_server_is_caught(fault: str, tmp_path: Path) -> None:
    judgement = against(fault, tmp_path)

    assert set() == BREAKS[fault] - broken(judgement)


class SilentOnce(Honest):
    """Let conversations go long before, and counts nothing when it is asked for the `asked`th time."""

    def __init__(self, backend: Counting, asked: int) -> None:
        super().__init__(backend)
        self._left = asked

    def metrics(self) -> str:
        """The counters, or nothing."""
        self._left -= 1
        return "" if self._left == 0 else f'{super().metrics()}ds4_evictions_total{{tier="disk"}} 5\n'


@pytest.mark.parametrize("asked", [1, 2])
def test_counters_that_fail_once_end_no_filling(asked: int, tmp_path: Path) -> None:
    judged(SilentOnce(keeper(), asked), tmp_path, settings({"deadline_s": 60.0}))
    filled = next(history.notes(history.read(tmp_path / "history.jsonl"), FILLED))

    assert 3 == filled.get("fillers")


def test_a_server_that_is_stuck_is_caught_in_bounded_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    judgement = against("deadlocks_when_full", tmp_path, deadline_s=0.7)

    assert BREAKS["deadlocks_when_full"] <= broken(judgement)
    assert time.monotonic() - begun < 30


def test_every_fault_that_the_registry_names_is_here_and_the_other_way_round() -> None:
    assert set(BREAKS) == set(registry.find("capacity").faults)
    assert set(BREAKS) <= set(FAULTS)
