"""What the churn gate claims, its keys in a profile, and the lying servers that it must catch."""

from __future__ import annotations

from gates.spec import GateSpec, Key, MeasureSpec

CHURN = GateSpec(
    name="churn",
    title="Churn: a deep conversation while short clients come and go",
    room="gates.churn",
    cost="medium",
    measures=(
        MeasureSpec(
            "churn.recall_ratio", "Every question to the deep conversation is exact", "higher", arm="warm"
        ),
        MeasureSpec("churn.cached_ratio", "The deep conversation is served from cache", "higher", arm="warm"),
        MeasureSpec(
            "churn.warm_ttft_ratio",
            "Its slowest first token, over that of a text as long that is cold",
            "lower",
            "critical",
            "warm",
        ),
        MeasureSpec("churn.pinned_evicted_count", "Nothing pinned is evicted", "lower", arm="warm"),
        MeasureSpec("churn.crosstalk_count", "No reply has a code of another client", "lower"),
        MeasureSpec("churn.tenant_leak_count", "No reply uses the cache of another tenant", "lower"),
        MeasureSpec("churn.client_ratio", "Short clients get right answers", "higher", "critical"),
        MeasureSpec(
            "churn.accuracy_drop_ratio", "The sample is answered as well afterwards as before", "lower"
        ),
        MeasureSpec("churn.altered_count", "The sample is answered the same afterwards", "lower", "critical"),
        MeasureSpec(
            "churn.memory_slope_bytes", "Memory does not grow, in bytes a minute", "lower", "critical"
        ),
        MeasureSpec(
            "churn.memory_growth_ratio",
            "Memory of the last quarter over that of the first",
            "lower",
            "critical",
        ),
        MeasureSpec(
            "churn.ceiling_fault_count", "At the ceiling everyone gets an answer or a clean refusal", "lower"
        ),
        MeasureSpec("churn.ceiling_count", "The ceiling was reached", "higher", "critical"),
        MeasureSpec(
            "churn.malformed_fault_count", "What is no request is refused as such", "lower", "critical"
        ),
        MeasureSpec("churn.empty_count", "No answer is empty", "lower"),
        MeasureSpec("churn.unanswered_count", "Every request gets an answer", "lower"),
        MeasureSpec(
            "churn.leftover_count", "Nothing is left open when all clients are gone", "lower", "critical"
        ),
        MeasureSpec("churn.usage_error_ratio", "Token counts are true", "lower", "critical"),
        MeasureSpec(
            "churn.length_error_ratio", "The deep text has the tokens of the profile", "lower", "critical"
        ),
        MeasureSpec("churn.rounds_count", "Rounds with an answer", "higher", "critical"),
    ),
    keys=(
        Key("hay", "text"),
        Key("minutes", "positive"),
        Key("rounds", "count"),
        Key("pinned_tokens", "count"),
        Key("pin", "switch"),  # ask for it with the request field; off for servers that have none
        Key("clients", "count"),
        Key("tenants", "count"),  # of the short clients, by `cache_salt`; 1: no such field is sent
        Key("cold_controls", "count"),
        Key("sample_items", "count"),
        Key("storm_every", "count"),  # rounds; 0: no storm
        Key("storm_requests", "count"),
        Key("storm_tokens", "count"),
        Key("cache_mib", "count"),  # budget of a server of this gate's own; 0: the run's server as it is
        Key("deadline_s", "positive"),
        Key("warm_up_ratio", "ratio"),
        Key("device_memory", "switch"),  # the server must tell its device memory in /metrics
        Key("quiet_host_ratio", "ratio"),
    ),
    faults=(
        "evicts_pinned",
        "never_keeps",
        "forgets_silently",
        "leaks",
        "shares_tenants",
        "answers_strangers",
        "empty_when_full",
        "refuses_without_a_time",
        "deadlocks_when_full",
        "ends_another",
        "fails_on_malformed",
        "leaves_open",
        "wears_out",
    ),
)
