"""The engine with the embedded model passes a small churn, and is caught with a fault seeded into it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from gates.harness import probe
from gates.harness.verdict import Judgement
from gates.profile import Value
from gates.tests.churn.driving import settings
from gates.tests.driving import broken, judged_at
from gates.tests.live_engine import small_engine

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
SIZE: Mapping[str, Value] = {
    "minutes": 0.5,
    "pinned_tokens": 1500,
    "clients": 4,
    "storm_requests": 24,
    "storm_tokens": 32768,
    "deadline_s": 60,
    "max_warm_ttft_ratio": 10.0,  # a text this short costs little more cold, and the host has other work
    "max_memory_slope_bytes": 2**40,  # half a minute is all warm-up
    "max_memory_growth_ratio": 10.0,
}
# Faults of engine/tests/seeded.py, and the claims of which each must break at least one.
CAUGHT = {
    "evicts_pinned_first": {"churn.cached_ratio", "churn.pinned_evicted_count"},
    "serves_other_tenants": {"churn.tenant_leak_count"},
    "waits_for_ever_on_a_full_budget": {"churn.unanswered_count", "churn.ceiling_fault_count"},
    "swaps_rows_of_a_step": {"churn.crosstalk_count", "churn.client_ratio", "churn.recall_ratio"},
    "compares_only_the_first_page": {"churn.crosstalk_count", "churn.client_ratio", "churn.recall_ratio"},
    "keeps_a_mib_of_every_request": {"churn.memory_slope_bytes"},
}
# A prefix of another can only be taken where many of one tenant are kept: no storm makes them yield.
CROWDED: Mapping[str, Value] = {"clients": 6, "tenants": 2, "rounds": 4, "storm_every": 0}
# Long enough to see memory after the warm-up, with the limit of profile `ci`.
LONG: Mapping[str, Value] = {"minutes": 1.5, "max_memory_slope_bytes": 40 * 2**20}
SHAPES: Mapping[str, Mapping[str, Value]] = {
    "compares_only_the_first_page": CROWDED,
    "keeps_a_mib_of_every_request": LONG,
}


def against(folder: Path, fault: str = "", **changes: Value) -> Judgement:
    """What a small churn says of it."""
    with small_engine(folder, "--cache-mib", "6", fault=fault) as server:
        assert server.pid is not None
        memory, table = partial(probe.memory, server.pid), settings({**SIZE, **changes})
        return judged_at(server.base_url, folder, table, memory=memory, pause=time.sleep)


@pytest.mark.parametrize("shape", [SIZE, LONG], ids=["short", "long"])
def test_the_engine_itself_passes(shape: Mapping[str, Value], tmp_path: Path) -> None:
    assert set() == broken(against(tmp_path, "", **shape))


@pytest.mark.parametrize("fault", [name for name in CAUGHT if name != "waits_for_ever_on_a_full_budget"])
def test_a_fault_in_the_engine_is_caught(fault: str, tmp_path: Path) -> None:
    judgement = against(tmp_path, fault, **SHAPES.get(fault, {}))

    assert set() != CAUGHT[fault] & broken(judgement)


def test_an_engine_that_waits_for_ever_is_caught_in_bounded_time(tmp_path: Path) -> None:
    fault = "waits_for_ever_on_a_full_budget"

    assert set() != CAUGHT[fault] & broken(against(tmp_path, fault, deadline_s=15))
