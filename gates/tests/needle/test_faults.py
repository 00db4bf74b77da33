"""Every lying server is caught by the needle gate, by the claims that it breaks; its honest twin passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gates import profile, registry
from gates.errors import DriveStopped
from gates.harness import history, room
from gates.harness.client import Client
from gates.harness.history import History
from gates.harness.launch import Attached
from gates.harness.rig import Rig
from gates.harness.verdict import GateVerdict, Judgement, Verdict, spec_of
from gates.profile import Settings, Value
from gates.tests.faults import FAULTS, Hangs
from gates.tests.reader import Reader, ReaderServer

SECONDS_PER_TOKEN = {"recomputes_in_secret": 0.0005}  # for others 0.0001: 0.04 s for a cell of 400 tokens

# The claims that each fault must break; others may break too.
BREAKS = {
    "forgets": {"needle.recall_ratio", "needle.failure_bound_ratio"},
    "wrong_conversation": {"needle.recall_ratio", "needle.crosstalk_count"},
    "truncates_context": {"needle.recall_ratio"},
    "stops_early": {"needle.recall_ratio", "needle.followup_ratio"},
    "runs_on": {"needle.truncated_count"},
    "cuts_stream": {"needle.unanswered_count"},
    "hangs": {"needle.unanswered_count"},
    "inflates_prompt_tokens": {"needle.usage_error_ratio"},
    "constant_prompt_tokens": {"needle.usage_error_ratio", "needle.length_error_ratio"},
    "doubles_completion_tokens": {"needle.usage_error_ratio"},
    "counts_fragments": {"needle.usage_error_ratio"},
    "reports_no_usage": {"needle.usage_error_ratio"},
    "wrong_total": {"needle.usage_error_ratio"},
    "claims_cached": {"needle.cold_cached_ratio"},
    "never_caches": {"needle.followup_cached_ratio"},
    "recomputes_in_secret": {"needle.followup_ttft_ratio"},
    "slower_with_depth": {"needle.ttft_spread_ratio", "needle.ttft_slope_ratio"},
    "invents_absent": {"needle.absent_ratio"},
    "returns_decoy": {"needle.recall_ratio", "needle.decoy_ratio"},
    "shuffles_order": {"needle.order_ratio"},
    "longer_number": {"needle.recall_ratio"},
}

CELLS = {"slower_with_depth": 10, "cuts_stream": 1}  # a slope needs many depths; each cut costs a second


class Silent:
    """Progress that nobody watches."""

    def cells(self, total: int, *, weights: Sequence[float] | None = None) -> None:
        """Nothing."""

    def cell(self, label: str) -> None:
        """Nothing."""


def settings(cells: int) -> Settings:
    """The needle table of `ci`, with a small tier and room for the noise of a busy host."""
    small: dict[str, Value] = {
        "case_set": "faults",
        "tiers_tokens": [400],
        "tier_cells": [cells],
        "tier_order_cells": [min(cells, 2)],
        "tier_absent_cells": [min(cells, 2)],
        "ttft_noise_s": 0.05,
        "max_ttft_slope_ratio": 0.3,
        "max_failure_bound_ratio": 0.4,
        "max_pooled_bound_ratio": 0.4,
    }
    return Settings("needle", {**profile.load("ci").table("needle").values, **small})


def judged(fault: str, folder: Path, *, cells: int = 4, deadline_s: float = 20.0) -> Judgement:
    """Plan, drive and check of the needle gate against a server with this fault."""
    gate = room.load(registry.find("needle"))
    backend = FAULTS[fault](Reader(seconds_per_token=SECONDS_PER_TOKEN.get(fault, 0.0001)))
    with (
        ReaderServer(backend) as server,
        Client(server.base_url, deadline_s=deadline_s) as client,
        History(folder / "history.jsonl") as record,
    ):
        alive = Attached(server.base_url).alive
        rig = Rig(client, record, Silent(), alive, data=None, context_tokens=4096)
        try:
            gate.drive(gate.plan(settings(cells), seed=7), rig)
            record.note(room.FINISHED)
        except DriveStopped:
            pass
        finally:
            if isinstance(backend, Hangs):
                backend.released.set()
    return room.judge(gate, history.read(folder / "history.jsonl"), settings(cells), None)


def verdict(judgement: Judgement) -> Verdict:
    """What the gate as a whole says."""
    return GateVerdict("needle", 0.0, None, judgement).verdict


def broken(judgement: Judgement) -> set[str]:
    """The claims that do not hold."""
    failed = [measure for measure in judgement.measures if measure.verdict is Verdict.FAIL]
    return {measure.id for measure in failed if not spec_of(measure.id).notice}


def test_the_honest_server_passes(tmp_path: Path) -> None:
    judgement = judged("honest", tmp_path, cells=10)

    assert set() == broken(judgement)
    assert Verdict.PASS == verdict(judgement)
    assert () == judgement.findings


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in ("honest", "dies", "hangs")])
def test_a_lying_server_is_caught(fault: str, tmp_path: Path) -> None:
    judgement = judged(fault, tmp_path, cells=CELLS.get(fault, 4))

    assert set() == BREAKS[fault] - broken(judgement)
    assert Verdict.FAIL == verdict(judgement)


def test_a_hanging_server_is_caught_although_it_is_healthy(tmp_path: Path) -> None:
    judgement = judged("hangs", tmp_path, deadline_s=0.5)

    assert {"needle.unanswered_count"} == broken(judgement)


def test_a_server_that_dies_makes_the_gate_unknown(tmp_path: Path) -> None:
    judgement = judged("dies", tmp_path)

    assert set() == broken(judgement)
    assert Verdict.UNKNOWN == verdict(judgement)


def test_every_fault_that_the_registry_names_is_here_and_the_other_way_round() -> None:
    assert set(FAULTS) - {"honest", "dies"} == set(registry.find("needle").faults)
    assert set(BREAKS) == set(registry.find("needle").faults)
