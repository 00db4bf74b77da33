"""Drives the capacity gate against a server of this process and judges what came of it; for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gates import profile
from gates.harness.verdict import Judgement
from gates.profile import Settings, Value
from gates.tests.budget_faults import DeadlocksWhenFull, Honest, LyingServer
from gates.tests.driving import judged_at
from gates.tests.keeper import TOKEN_BYTES

# The claims that each fault must break; others may break too.
BREAKS = {
    "never_keeps": {"capacity.cached_ratio"},
    "forgets_silently": {"capacity.warm_ttft_ratio"},
    "evicts_pinned": {"capacity.cached_ratio"},
    "keeps_wide": {"capacity.live_ratio"},
    "one_at_a_time": {"capacity.concurrent_ratio"},
    "begins_together": {"capacity.concurrent_ratio"},
    "ends_another": {"capacity.unanswered_count", "capacity.recall_ratio"},
    "empty_when_full": {"capacity.ceiling_fault_count"},
    "refuses_without_a_time": {"capacity.ceiling_fault_count"},
    "deadlocks_when_full": {"capacity.unanswered_count"},
    "leaves_open": {"capacity.leftover_count"},
}
SMALL: Mapping[str, Value] = {
    "deep_tokens": [1200, 700],
    "filler_tokens": 500,
    "most_filled_tokens": 4000,
    "wide_bytes_per_token": 4 * TOKEN_BYTES,
    "storm_requests": 8,
    "storm_tokens": 1500,
    "cache_mib": 0,
    "deadline_s": 10,
    "min_live_ratio": 3.0,
    "quiet_host_ratio": 1.0,  # the tests beside this one are other work
}


def settings(changes: Mapping[str, Value]) -> Settings:
    """The capacity table of `ci` with changes, in the size of a test."""
    return Settings("capacity", {**profile.load("ci").table("capacity").values, **SMALL, **changes})


def judged(backend: Honest, folder: Path, table: Settings) -> Judgement:
    """Plan, drive and check of the capacity gate against this server."""
    with LyingServer(backend) as server:
        try:
            return judged_at(server.base_url, folder, table)
        finally:
            if isinstance(backend, DeadlocksWhenFull):
                backend.released.set()
