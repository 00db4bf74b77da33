"""Drives the churn gate against a server of this process and judges what came of it; for the test files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gates import profile
from gates.harness.probe import Memory
from gates.harness.verdict import Judgement
from gates.profile import Settings, Value
from gates.tests.budget_faults import DeadlocksWhenFull, Honest, LyingServer
from gates.tests.driving import judged_at

# The claims that each fault must break; others may break too.
BREAKS = {
    "evicts_pinned": {"churn.cached_ratio", "churn.pinned_evicted_count"},
    "never_keeps": {"churn.cached_ratio"},
    "forgets_silently": {"churn.warm_ttft_ratio"},
    "leaks": {"churn.memory_slope_bytes", "churn.memory_growth_ratio"},
    "shares_tenants": {"churn.tenant_leak_count"},
    "answers_strangers": {"churn.crosstalk_count"},
    "empty_when_full": {"churn.ceiling_fault_count"},
    "refuses_without_a_time": {"churn.ceiling_fault_count"},
    "deadlocks_when_full": {"churn.unanswered_count"},
    "ends_another": {"churn.unanswered_count"},
    "fails_on_malformed": {"churn.malformed_fault_count"},
    "leaves_open": {"churn.leftover_count"},
    "wears_out": {"churn.accuracy_drop_ratio", "churn.altered_count"},
}
SMALL: Mapping[str, Value] = {
    "minutes": 0.03,
    "rounds": 6,
    "pinned_tokens": 900,
    "clients": 3,
    "sample_items": 3,
    "storm_every": 2,
    "storm_requests": 8,
    "storm_tokens": 1500,
    "cache_mib": 0,
    "deadline_s": 10,
    "min_rounds_count": 6,
    "quiet_host_ratio": 1.0,  # the tests beside this one are other work
}


def settings(changes: Mapping[str, Value]) -> Settings:
    """The churn table of `ci` with changes, in the size of a test."""
    return Settings("churn", {**profile.load("ci").table("churn").values, **SMALL, **changes})


def judged(
    backend: Honest,
    folder: Path,
    table: Settings,
    *,
    memory: Callable[[], Memory | None] = lambda: Memory(64 << 20, 0),
) -> Judgement:
    """Plan, drive and check of the churn gate against this server."""
    with LyingServer(backend) as server:
        try:
            return judged_at(server.base_url, folder, table, memory=memory)
        finally:
            if isinstance(backend, DeadlocksWhenFull):
                backend.released.set()
