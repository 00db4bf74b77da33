"""What the needle gate claims, its keys in a profile, and the lying servers that it must catch."""

from __future__ import annotations

from gates.spec import GateSpec, Key, MeasureSpec

NEEDLE = GateSpec(
    name="needle",
    title="Needle: exact recall at every depth and length",
    room="gates.needle",
    cost="medium",
    measures=(
        MeasureSpec("needle.recall_ratio", "Codes are recalled exactly", "higher"),
        MeasureSpec("needle.failure_bound_ratio", "Upper 95 % bound of the failure rate, pooled", "lower"),
        MeasureSpec("needle.decoy_ratio", "Two decoys of the same form do not mislead", "higher"),
        MeasureSpec("needle.absent_ratio", "An absent needle is answered as absent", "higher"),
        MeasureSpec("needle.order_ratio", "Several needles come back in their order", "higher", "critical"),
        MeasureSpec("needle.crosstalk_count", "No reply has a code of another conversation", "lower"),
        MeasureSpec("needle.followup_ratio", "A follow-up turn is still exact", "higher", arm="warm"),
        MeasureSpec(
            "needle.followup_cached_ratio",
            "A follow-up turn is served from cache",
            "higher",
            "critical",
            "warm",
        ),
        MeasureSpec(
            "needle.followup_ttft_ratio", "The cache saves the time of the text", "lower", "critical", "warm"
        ),
        MeasureSpec("needle.cold_cached_ratio", "Cold cells are really cold", "lower", "critical"),
        MeasureSpec(
            "needle.length_error_ratio", "Prompts have the tokens that the tier names", "lower", "critical"
        ),
        MeasureSpec("needle.usage_error_ratio", "Token counts are true", "lower", "critical"),
        MeasureSpec("needle.ttft_spread_ratio", "Time to first token is flat over depth", "lower", "normal"),
        MeasureSpec(
            "needle.ttft_slope_ratio", "Time to first token has no slope over depth", "lower", "normal"
        ),
        MeasureSpec("needle.truncated_count", "No reply is cut by the token limit", "lower", "critical"),
        MeasureSpec("needle.unanswered_count", "Every request gets an answer", "lower"),
        MeasureSpec(
            "needle.pooled_bound_ratio",
            "Upper 95 % bound of the failure rate over all kept runs",
            "lower",
            "minor",
            notice=True,
        ),
        MeasureSpec("needle.pooled_cells_count", "Cells of all kept runs", "higher", "minor", notice=True),
        MeasureSpec(
            "needle.pooled_failures_count", "Failed cells of all kept runs", "lower", "minor", notice=True
        ),
    ),
    keys=(
        Key("case_set", "text"),
        Key("hay", "text"),
        Key("tiers_tokens", "counts"),
        Key("tier_cells", "counts"),
        Key("tier_order_cells", "counts"),
        Key("tier_absent_cells", "counts"),
        Key("tier_cold_asks", "counts"),
        Key("depths", "ratios"),
        Key("ttft_noise_s", "number"),
        Key("ttft_noise_ratio", "number"),
        Key("ttft_trim_count", "count"),
        Key("ttft_slope_width_ratio", "number"),
        Key("quiet_host_ratio", "ratio"),
    ),
    faults=(
        "forgets",
        "wrong_conversation",
        "truncates_context",
        "stops_early",
        "runs_on",
        "cuts_stream",
        "hangs",
        "inflates_prompt_tokens",
        "constant_prompt_tokens",
        "doubles_completion_tokens",
        "counts_fragments",
        "reports_no_usage",
        "wrong_total",
        "claims_cached",
        "never_caches",
        "recomputes_in_secret",
        "slower_with_depth",
        "invents_absent",
        "returns_decoy",
        "shuffles_order",
        "longer_number",
    ),
)
