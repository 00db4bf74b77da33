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
    """

    name: str
    title: str
    room: str | None
    cost: Cost
    measures: tuple[MeasureSpec, ...]
    keys: tuple[Key, ...] = ()
    faults: tuple[str, ...] = ()
    by_item: bool = False

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

GATES: tuple[GateSpec, ...] = (NEEDLE, QUALITY)

# What no gate of this suite looks at yet; it stands in every verdict, so that nobody reads more into a pass.
UNCOVERED: tuple[str, ...] = (
    "Speed, alone and under load: no gate yet",
    "Tool calls: no gate yet",
    "Memory and recall over hours of mixed traffic: no gate yet",
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
