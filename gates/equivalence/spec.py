"""What the equivalence gate claims, its keys in a profile, and the seeded faults that it must catch."""

from __future__ import annotations

from gates.spec import GateSpec, Key, MeasureSpec

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
        "splits_sums_among_threads",
        "ignores_the_layout_of_a_file",
        "trusts_torn_files",
    ),
    white_box=True,
)
