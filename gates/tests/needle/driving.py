"""Drives the needle gate against a server of this process and judges what came of it; for the test files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gates import profile
from gates.harness.verdict import GateVerdict, Judgement, Verdict
from gates.profile import Settings, Value
from gates.tests.driving import judged_at
from gates.tests.faults import Hangs, Honest
from gates.tests.reader import ReaderServer

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


def settings(changes: Mapping[str, Value]) -> Settings:
    """The needle table of `ci` with changes, and bounds that a handful of cells can keep."""
    few: dict[str, Value] = {
        "ttft_noise_s": 0.05,
        "max_ttft_slope_ratio": 0.3,
        "ttft_slope_width_ratio": 100.0,  # a handful of cells in milliseconds proves no slope
        "max_failure_bound_ratio": 0.6,
        "max_pooled_bound_ratio": 0.6,
    }
    return Settings("needle", {**profile.load("ci").table("needle").values, **few, **changes})


def judged(backend: Honest, folder: Path, table: Settings, *, deadline_s: float) -> Judgement:
    """Plan, drive and check of the needle gate against this server."""
    with ReaderServer(backend) as server:
        try:
            return judged_at(server.base_url, folder, table, context_tokens=4096, deadline_s=deadline_s)
        finally:
            if isinstance(backend, Hangs):
                backend.released.set()


def verdict(judgement: Judgement) -> Verdict:
    """What the gate as a whole says."""
    return GateVerdict("needle", 0.0, None, judgement).verdict
