"""The one list of gates: rooms, measures with direction and severity, cost, profile keys, faults to catch.

Knows no thresholds (profiles do) and no code of the rooms (they are imported by name when they run).
A limit's key in a profile follows from the measure: `needle.recall_ratio`, better higher, is
`[needle] min_recall_ratio`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]
Severity = Literal["blocker", "critical", "normal", "minor"]
Cost = Literal["cheap", "medium", "dear"]
Kind = Literal[
    "count", "counts", "number", "numbers", "ratio", "ratios", "text", "texts", "switch", "positive"
]

SIGNS: Mapping[Better, str] = {"higher": ">=", "lower": "<="}  # how a value stands to its limit
COST_ORDER: tuple[Cost, ...] = ("cheap", "medium", "dear")
UNITS: tuple[str, ...] = ("tokens", "bytes", "gib", "ms", "s", "tps", "ratio", "count")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting of a gate in a profile: its name and what kind of value it takes."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """One claim: a measured number with a direction.

    A `notice` is shown but does not move the verdict; a `paired` claim compares with a baseline.
    """

    id: str
    title: str
    better: Better
    severity: Severity = "blocker"
    arm: str = "cold"
    notice: bool = False
    paired: bool = False

    @property
    def unit(self) -> str:
        """The unit, which ends the id: one of UNITS."""
        return self.id.rsplit("_", 1)[-1].rsplit(".", 1)[-1]

    @property
    def limit_key(self) -> str:
        """The name of this measure's limit in its gate's table of a profile."""
        return ("min_" if self.better == "higher" else "max_") + self.id.split(".", 1)[1]


@dataclass(frozen=True, slots=True)
class GateSpec:
    """One gate: `room` is the package with plan, drive and check; None where the harness itself measures.

    One `by_item` asks questions that have nothing to do with each other: it goes on from its own record after
    an interruption, where others are driven again, and it can be asked in parts.
    One that is a `white_box` judges the engine of this checkout, not what answers at the server's address.
    """

    name: str
    title: str
    room: str | None
    cost: Cost
    measures: tuple[MeasureSpec, ...]
    keys: tuple[Key, ...] = ()
    faults: tuple[str, ...] = ()
    by_item: bool = False
    white_box: bool = False

    def all_keys(self) -> tuple[Key, ...]:
        """Every key that this gate's table must have: own keys, one limit a measure, the time budget."""
        limits = tuple(Key(measure.limit_key, "number") for measure in self.measures)
        return (*self.keys, *limits, Key("budget_minutes", "positive"))

    def measure(self, measure_id: str) -> MeasureSpec:
        """The measure with this id; KeyError if the gate does not have it."""
        for measure in self.measures:
            if measure.id == measure_id:
                return measure
        raise KeyError(measure_id)


RUN = GateSpec(
    name="run",
    title="The run itself",
    room=None,
    cost="cheap",
    measures=(
        MeasureSpec(
            "run.leftover_count", "The server leaves no process and no port behind", "lower", "critical"
        ),
        MeasureSpec("run.budget_ratio", "Every gate keeps its time budget", "lower", "minor", notice=True),
    ),
)

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
        "ends_another",
        "empty_when_full",
        "refuses_without_a_time",
        "deadlocks_when_full",
        "leaves_open",
    ),
)

EQUIVALENCE = GateSpec(
    name="equivalence",
    title="Equivalence: the same bits however they are computed and kept",
    room="gates.equivalence",
    cost="cheap",
    measures=(
        MeasureSpec(
            "equivalence.codes_differing_count", "Rows have the codes and scales of their definition", "lower"
        ),
        MeasureSpec(
            "equivalence.storage_differing_count", "Packed and wide rows give the same bits", "lower"
        ),
        MeasureSpec("equivalence.cuts_differing_count", "A prompt may be cut anywhere", "lower"),
        MeasureSpec("equivalence.company_differing_count", "A row keeps its bits in any company", "lower"),
        MeasureSpec(
            "equivalence.prefix_differing_count", "Warm and forked prompts are as fresh", "lower", arm="warm"
        ),
        MeasureSpec(
            "equivalence.restore_differing_count",
            "Evicted, stored and restored states are as kept ones",
            "lower",
            arm="warm",
        ),
        MeasureSpec(
            "equivalence.device_differing_count",
            "Device steps agree, captured or eager, of one row or of several",
            "lower",
        ),
        MeasureSpec(
            "equivalence.twin_error_ratio", "Kernels keep the tolerance of their format", "lower", "critical"
        ),
        MeasureSpec("equivalence.crashed_count", "No run of a pair breaks", "lower"),
        MeasureSpec(
            "equivalence.inapplicable_count",
            "Cases that this machine cannot run",
            "lower",
            "minor",
            notice=True,
        ),
    ),
    keys=(
        Key("edges_tokens", "counts"),  # of chunks, pages, ratios, windows and choices; each with +-1
        Key("few_edges_tokens", "counts"),  # those that the longer pairs take
        Key("prompt_tokens", "count"),
        Key("first_chunks_tokens", "counts"),
        Key("batch_rows", "counts"),
        Key("random_cuts", "count"),
        Key("twin_shapes", "texts"),
    ),
    faults=(
        "forgets_the_overlap_on_a_hit",
        "window_layers_start_empty",
        "copies_half_a_page",
        "reused_pages_keep_old_rows",
        "evicts_under_a_prefill",
        "keeps_a_page_before_it_is_full",
        "compares_only_the_first_page",
        "swaps_rows_of_a_step",
        "later_chunks_lose_rows",
        "window_edge_forgets_the_block_before",
        "crashes_on_a_large_first_chunk",
        "forgets_a_rounding",
        "doubles_scales_of_exact_powers",
        "loses_minus_zero",
        "rounds_a_lone_row_otherwise",
        "ignores_the_layout_of_a_file",
        "trusts_torn_files",
    ),
    white_box=True,
)

GATES: tuple[GateSpec, ...] = (EQUIVALENCE, NEEDLE, QUALITY, CHURN, CAPACITY)

# What no gate of this suite looks at yet; it stands in every verdict, so that nobody reads more into a pass.
UNCOVERED: tuple[str, ...] = (
    "Speed, alone and under load: no gate yet",
    "Tool calls: no gate yet",
)


def find(name: str) -> GateSpec:
    """The gate of this name; KeyError if there is none."""
    for gate in (*GATES, RUN):
        if gate.name == name:
            return gate
    raise KeyError(name)


def cheap_first(names: list[str]) -> list[GateSpec]:
    """The named gates in the order in which a run takes them: by cost class, then by place in the list."""
    chosen = [gate for gate in GATES if gate.name in names]
    return sorted(chosen, key=lambda gate: COST_ORDER.index(gate.cost))
