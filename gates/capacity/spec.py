"""What the capacity gate claims, its keys in a profile, and the lying servers that it must catch."""

from __future__ import annotations

from gates.spec import GateSpec, Key, MeasureSpec

CAPACITY = GateSpec(
    name="capacity",
    title="Capacity: as many live tokens as the budget holds",
    room="gates.capacity",
    cost="medium",
    measures=(
        MeasureSpec(
            "capacity.live_ratio", "Live tokens over what float32 rows allow in the same budget", "higher"
        ),
        MeasureSpec(
            "capacity.concurrent_ratio",
            "Two deep conversations decode at the same time",
            "higher",
            "critical",
        ),
        MeasureSpec("capacity.recall_ratio", "Deep conversations answer exactly", "higher"),
        MeasureSpec("capacity.cached_ratio", "Every next turn is served from cache", "higher", arm="warm"),
        MeasureSpec(
            "capacity.warm_ttft_ratio",
            "The slowest first token of a next turn, over that of the first",
            "lower",
            "critical",
            "warm",
        ),
        MeasureSpec(
            "capacity.ceiling_fault_count",
            "At the ceiling everyone gets an answer or a clean refusal",
            "lower",
        ),
        MeasureSpec("capacity.ceiling_count", "The ceiling was reached", "higher", "critical"),
        MeasureSpec("capacity.unanswered_count", "No other request is ended or left alone", "lower"),
        MeasureSpec(
            "capacity.leftover_count", "Nothing is left open when all clients are gone", "lower", "critical"
        ),
        MeasureSpec("capacity.usage_error_ratio", "Token counts are true", "lower", "critical"),
        MeasureSpec(
            "capacity.length_error_ratio", "Texts have the tokens of the profile", "lower", "critical"
        ),
    ),
    keys=(
        Key("hay", "text"),
        Key("deep_tokens", "counts"),
        Key("filler_tokens", "count"),
        Key("most_filled_tokens", "count"),  # where the server does not say that something had to yield
        Key("wide_bytes_per_token", "positive"),  # of the same model's rows in float32
        Key("pin", "switch"),
        Key("storm_requests", "count"),
        Key("storm_tokens", "count"),
        Key("cache_mib", "count"),  # budget of a server of this gate's own; 0: the run's server as it is
        Key("deadline_s", "positive"),
        Key("quiet_host_ratio", "ratio"),
    ),
    faults=(
        "never_keeps",
        "forgets_silently",
        "evicts_pinned",
        "keeps_wide",
        "one_at_a_time",
        "begins_together",
        "ends_another",
        "empty_when_full",
        "refuses_without_a_time",
        "deadlocks_when_full",
        "leaves_open",
    ),
)
