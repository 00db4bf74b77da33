"""What the quality gate claims, its keys in a profile, and the lying servers that it must catch."""

from __future__ import annotations

from gates.spec import GateSpec, Key, MeasureSpec

QUALITY = GateSpec(
    name="quality",
    title="Quality: question sets against the build before",
    room="gates.quality",
    cost="dear",
    measures=(
        MeasureSpec("quality.margin_ratio", "No set lost more than its margin", "lower", paired=True),
        MeasureSpec(
            "quality.differing_count", "Where nothing may change, no reply changed", "lower", paired=True
        ),
        MeasureSpec(
            "quality.noise_ratio", "The same build asked twice answers the same", "lower", "critical"
        ),
        MeasureSpec(
            "quality.detectable_ratio",
            "Smallest drop that would have been seen, over the margin",
            "lower",
            "minor",
            notice=True,
        ),
        MeasureSpec(
            "quality.score_ratio", "Lowest share of right answers of a set", "higher", "minor", notice=True
        ),
        MeasureSpec("quality.score_margin_ratio", "Every set keeps its least score", "higher"),
        MeasureSpec("quality.missing_count", "Every planned item is on record", "lower", "critical"),
        MeasureSpec("quality.fault_ratio", "Items without a usable reply", "lower", "critical"),
        MeasureSpec("quality.refused_ratio", "Items that the server refused", "lower", "critical"),
        MeasureSpec("quality.truncated_ratio", "Replies cut by the token limit", "lower", "critical"),
        MeasureSpec("quality.empty_ratio", "Replies without a text", "lower", "critical"),
        MeasureSpec("quality.unparsed_ratio", "Replies without an answer to grade", "lower", "critical"),
        MeasureSpec(
            "quality.retries_count",
            "Requests sent again for a fault of transport",
            "lower",
            "minor",
            notice=True,
        ),
        MeasureSpec("quality.length_ratio", "Replies are as long as usual", "lower", "critical"),
        MeasureSpec("quality.fast_in_force_ratio", "The fast arm does not think", "higher", "critical"),
        MeasureSpec("quality.thinking_in_force_ratio", "The thinking arm thinks", "higher", "critical"),
        MeasureSpec("quality.usage_error_ratio", "Token counts are true", "lower", "critical"),
        MeasureSpec(
            "quality.first_token_ratio", "A stream begins as the whole reply does", "higher", "critical"
        ),
        MeasureSpec("quality.canned_ratio", "Another question gets another reply", "lower", "critical"),
        MeasureSpec("quality.crosstalk_count", "No reply belongs to another client", "lower"),
        MeasureSpec(
            "quality.repeat_saving_ratio",
            "A repeat saves what its cached tokens explain",
            "lower",
            "critical",
        ),
        MeasureSpec("quality.seed_speed_ratio", "Another seed is as fast", "lower", "critical"),
    ),
    keys=(
        Key("sets", "texts"),
        Key("fast_margins", "ratios"),  # of each set the share that may be lost; 0: no reply may change
        Key("thinking_margins", "ratios"),
        Key("looks", "count"),  # how often a set is looked at, the last time at its end
        Key("fast_items", "counts"),  # of each set, asked without thinking; 0: none
        Key("thinking_items", "counts"),
        Key("fast_max_tokens", "count"),
        Key("thinking_max_tokens", "count"),
        Key("fast_min_scores", "ratios"),
        Key("thinking_min_scores", "ratios"),
        Key("fast_mean_tokens", "numbers"),  # of a usual reply; 0: not known
        Key("thinking_mean_tokens", "numbers"),
        Key("twice_items", "count"),  # of each set and arm, asked a second time
        Key("honesty_items", "count"),
        Key("concurrency", "count"),
        Key("transport_retries", "count"),
        Key("quiet_host_ratio", "ratio"),
    ),
    faults=(
        "wrong_format",
        "stops_at_a_length",
        "thinks_in_the_fast_arm",
        "thinks_in_secret",
        "never_thinks",
        "exchanges_replies",
        "inflates_completion_tokens",
        "canned",
        "remembers_replies",
        "knows_one_seed",
        "streams_otherwise",
    ),
    by_item=True,
)
