"""The engine with the embedded model passes a small capacity gate; wide rows and seeded faults do not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gates.harness.verdict import Judgement
from gates.profile import Value
from gates.tests.capacity.driving import settings
from gates.tests.driving import broken, judged_at
from gates.tests.live_engine import small_engine

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
SIZE: Mapping[str, Value] = {
    "deep_tokens": [3000, 2000],
    "filler_tokens": 2000,
    "most_filled_tokens": 20_000,
    "wide_bytes_per_token": 488,
    "storm_requests": 12,
    "storm_tokens": 32768,
    "deadline_s": 60,
    "min_live_ratio": 0.6,  # in texts this short the windows weigh more than the rows
    "max_warm_ttft_ratio": 10.0,  # a text this short costs little cold, and the host has other work
}


def against(folder: Path, fault: str = "", **changes: Value) -> Judgement:
    """What a small capacity gate says of it."""
    with small_engine(folder, "--cache-mib", "4", fault=fault) as server:
        return judged_at(server.base_url, folder, settings({**SIZE, **changes}), pause=time.sleep)


def test_the_engine_itself_passes(tmp_path: Path) -> None:
    assert set() == broken(against(tmp_path))


def test_float32_rows_hold_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKGATE_KV_STORAGE", "wide")

    assert "capacity.live_ratio" in broken(against(tmp_path))


def test_pinned_ones_that_yield_first_are_missed(tmp_path: Path) -> None:
    assert "capacity.cached_ratio" in broken(against(tmp_path, fault="evicts_pinned_first"))


def test_an_engine_that_waits_for_ever_is_caught_in_bounded_time(tmp_path: Path) -> None:
    fault = "waits_for_ever_on_a_full_budget"
    claims = {"capacity.unanswered_count", "capacity.ceiling_fault_count"}

    assert set() != claims & broken(against(tmp_path, fault=fault, deadline_s=15))
