"""The two tables of the equivalence gate: pairs that agree bit for bit, and kernels with a tolerance.

Pure data and how it unfolds into cases; what a pair runs is in `storing`, `cutting`, `sharing`, `keeping`
and `capturing`, what a twin runs is in `twins`.  Knows no engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gates.profile import Settings

Family = Literal["codes", "storage", "cuts", "company", "prefix", "restore", "device"]
FAMILIES: tuple[Family, ...] = ("codes", "storage", "cuts", "company", "prefix", "restore", "device")
OFFSETS = (-1, 0, 1)  # an edge is tried before it, at it and behind it


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a profile: edges in tokens, and how far beyond them a pair goes.

    `few` are the edges of pairs that compute most for each.
    """

    edges: tuple[int, ...]
    few: tuple[int, ...]
    prompt: int
    first_chunks: tuple[int, ...]
    batch_rows: tuple[int, ...]
    random_cuts: int
    seed: int

    @classmethod
    def of(cls, settings: Settings, seed: int) -> Sizes:
        """The sizes in the gate's table of a profile."""
        return cls(
            edges=settings.counts("edges_tokens"),
            few=settings.counts("few_edges_tokens"),
            prompt=settings.count("prompt_tokens"),
            first_chunks=settings.counts("first_chunks_tokens"),
            batch_rows=settings.counts("batch_rows"),
            random_cuts=settings.count("random_cuts"),
            seed=seed,
        )


Cases = Mapping[str, Mapping[str, Any]]  # by name: what the case is run with


def around(edges: Iterable[int], *, least: int = 1, most: int | None = None) -> Cases:
    """Every edge with its neighbours, by name, from `least` to `most` tokens."""
    return {
        f"{edge}{offset:+d}" if offset else f"{edge}": {"at": edge + offset}
        for edge in edges
        for offset in OFFSETS
        if least <= edge + offset and (most is None or edge + offset <= most)
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ways to the same state: why they must agree, and the cases in which that is tried."""

    id: str
    title: str
    family: Family
    reason: str
    cases: Callable[[Sizes], Cases]


@dataclass(frozen=True, slots=True)
class Twin:
    """A kernel and its definition in plain torch, and how far apart the format lets them be.

    `measure`: `exact` counts differing values, `share` is their share, `relative` the largest difference over
    the largest value.
    """

    id: str
    title: str
    format: str
    measure: Literal["exact", "share", "relative"]
    tolerance: float
    reason: str


def _named(*names: str) -> Callable[[Sizes], Cases]:
    return lambda _: {name: {"kind": name} for name in names}


def _edges(sizes: Sizes) -> Cases:
    return around(sizes.edges)


def _cuts(sizes: Sizes) -> Cases:
    return around(sizes.edges, most=sizes.prompt - 1)


def _few(sizes: Sizes) -> Cases:
    return around(sizes.few)


def _random_cuts(sizes: Sizes) -> Cases:
    """Seeded chunkings, with chunks of one token and chunks of hundreds."""
    found: dict[str, dict[str, Any]] = {}
    for number in range(sizes.random_cuts):
        drawn = random.Random(f"{sizes.seed}/{number}")
        cuts: list[int] = []
        while sum(cuts) < sizes.prompt:
            cuts.append(min(drawn.choice([1, 2, 3, 5, 17, 40, 64, 100]), sizes.prompt - sum(cuts)))
        found[f"seeded {number + 1}"] = {"cuts": cuts}
    return found


def _first_chunks(sizes: Sizes) -> Cases:
    return {f"{count}": {"at": count} for count in sizes.first_chunks}


def _rows(sizes: Sizes) -> Cases:
    return {f"{count} rows": {"rows": count} for count in sizes.batch_rows}


def _stored(sizes: Sizes) -> Cases:
    """Edges whose last anchor too is long enough to be worth a file."""
    return around(sizes.few, least=257)


def _thirds(sizes: Sizes) -> Cases:
    """Edges of which a prompt has several."""
    return around(sizes.few, least=3, most=sizes.prompt // 2)


CODE_ROWS = ("powers_of_two", "grid_ends", "zeros", "subnormals", "block_ends", "decades", "any_bits")

PAIRS: tuple[Pair, ...] = (
    Pair(
        "kv_codes",
        "Attention rows: codes and scales against the definition",
        "codes",
        "A row is E4M3 codes times a power of two by the model's definition, worked out here in float64 from"
        " exponents alone; a scale twice as large gives most of the same values and is still another format.",
        _named(*CODE_ROWS),
    ),
    Pair(
        "index_codes",
        "Index rows: codes and scales against the definition",
        "codes",
        "The same for E2M1 codes and blocks of 32, where a minus zero is a code of its own.",
        _named(*CODE_ROWS),
    ),
    Pair(
        "packed_twice",
        "Unpacked rows packed again",
        "codes",
        "A state that is written, read and written again must not move: rounding what is rounded changes"
        " nothing.",
        _named(*CODE_ROWS),
    ),
    Pair(
        "storage",
        "Packed and wide rows",
        "storage",
        "Codes and float32 rows stand for the same values, so what lies in memory changes no bit of what is"
        " computed from it.",
        _edges,
    ),
    Pair(
        "cut",
        "A prompt whole and cut once",
        "cuts",
        "Tiles are aligned to positions and not to chunks; what a chunk leaves half filled is all that the"
        " next one needs.",
        _cuts,
    ),
    Pair(
        "chunk_size",
        "A prompt whole and in equal chunks",
        "cuts",
        "Every chunk size meets every phase of windows, pages and ratios in some chunk.",
        _few,
    ),
    Pair(
        "random_cuts",
        "A prompt whole and cut at random",
        "cuts",
        "Chunks of one token among long ones, as a scheduler makes them under load.",
        _random_cuts,
    ),
    Pair(
        "decode",
        "A prompt whole and token by token",
        "cuts",
        "Prefill and decode are one computation; on the CPU they are the same kernels.",
        lambda sizes: {f"{sizes.prompt}": {"at": sizes.prompt}},
    ),
    Pair(
        "first_chunk",
        "A first chunk far above or below the window",
        "cuts",
        "A first chunk may be one token or many windows; buffers that are sized for the usual one overrun.",
        _first_chunks,
    ),
    Pair(
        "decode_rows",
        "A decode row alone and in a batch",
        "company",
        "Sums run in an order that the row's own shape fixes; a batch may be faster, never different.",
        _rows,
    ),
    Pair(
        "mixed_rows",
        "A chunk alone and beside decoding rows",
        "company",
        "One step takes decode rows and a chunk of a prompt; neither may see the other.",
        _rows,
    ),
    Pair(
        "threads",
        "One thread and all",
        "company",
        "Threads share the work by rows and columns, never by terms of a sum.",
        lambda sizes: {f"{sizes.prompt}": {"at": sizes.prompt}},
    ),
    Pair(
        "together",
        "Requests alone and at once",
        "company",
        "The loop hands every row of a step to the request that it belongs to.",
        _rows,
    ),
    Pair(
        "warm",
        "A second turn cold and warm",
        "prefix",
        "A finished conversation is continued in place; its last token was drawn but never computed.",
        _few,
    ),
    Pair(
        "fork",
        "A prompt fresh and forked from a kept one",
        "prefix",
        "A fork shares full pages and copies the half-filled one, and takes windows and frontiers from the"
        " anchor, never from the end.",
        _edges,
    ),
    Pair(
        "fork_running",
        "A prompt fresh and forked from a running one",
        "prefix",
        "Branches of one prompt share one prefill while its owner goes on writing.",
        _named("branch"),
    ),
    Pair(
        "alike",
        "Two conversations that begin alike",
        "prefix",
        "A kept state serves a prompt only as far as every single token is the same.",
        _named("both turns"),
    ),
    Pair(
        "cancelled",
        "A prompt asked again after its first try was cancelled",
        "prefix",
        "What a cancelled prompt leaves are exactly the tokens that were computed, wherever its last chunk"
        " ended.",
        _thirds,
    ),
    Pair(
        "recycled",
        "A prompt on fresh pages and on used ones",
        "restore",
        "A page keeps nothing of its former holder, neither codes nor scales.",
        _named("decoded rows", "whole chunks"),
    ),
    Pair(
        "under_prefill",
        "A fork whose source is evicted while it runs",
        "restore",
        "Pages that a running prompt shares stay, whatever becomes of the record that they came from.",
        _named("source evicted"),
    ),
    Pair(
        "evicted",
        "A conversation kept in memory and evicted to disk",
        "restore",
        "Rows, windows and frontiers come back from a file as they were, at its end and at its anchors.",
        _stored,
    ),
    Pair(
        "other_process",
        "A conversation kept and found again by another process",
        "restore",
        "A file is all that a fresh process has; it must be enough, and exact, in either storage.",
        _named("packed", "wide"),
    ),
    Pair(
        "other_layout",
        "A file of another storage, rounding or model",
        "restore",
        "Rows of another layout are numbers too: a file that does not fit is a miss, never a wrong load.",
        _named("packed to wide", "wide to packed", "other rounding"),
    ),
    Pair(
        "torn",
        "A file that was cut, zeroed or changed",
        "restore",
        "A damaged file costs a computation and nothing else.",
        _named("cut", "zeroed", "changed"),
    ),
    Pair(
        "killed",
        "After a process that died while it wrote",
        "restore",
        "A checkpoint that was abandoned half written is as good as none.",
        _named("mid file"),
    ),
    Pair(
        "captured",
        "A decode step captured and eager",
        "device",
        "A captured step replays the very launches of an eager one.",
        _named("replay"),
    ),
    Pair(
        "device_rows",
        "Rows of a device step one by one and several at once",
        "device",
        "The phase picks the kernels of a step, never its width; a verify step must give the bits of plain"
        " ones.",
        lambda _: {f"{rows} rows": {"rows": rows} for rows in (2, 4, 5, 8, 16, 32)},
    ),
)

TWINS: tuple[Twin, ...] = (
    Twin(
        "scale_exponents",
        "Scales of blocks at the edges of both formats",
        "E8M0",
        "exact",
        0.0,
        "an exponent is a whole number",
    ),
    Twin("bf16", "BF16 of float32 values and of ties", "BF16", "exact", 0.0, "one rounding, ties to even"),
    Twin(
        "unpacked_rows",
        "Packed attention rows unpacked",
        "E4M3 and BF16",
        "exact",
        0.0,
        "BF16 holds every E4M3 value with its scale",
    ),
    Twin(
        "finished_rows",
        "Attention rows normed, rotated and packed",
        "E4M3 and BF16",
        "share",
        2e-3,
        "a last bit of the norm may fall over a rounding edge: bytes in a thousand",
    ),
    Twin(
        "index_rows",
        "Index rows normed, rotated, transformed and packed",
        "FP4",
        "share",
        5e-3,
        "the same, and FP4 has fewer steps to fall over",
    ),
    Twin(
        "index_scores",
        "Scores of index rows",
        "FP4, float32 sums",
        "relative",
        1e-5,
        "products are exact, the sum over heads rounds in its own order",
    ),
    Twin(
        "index_choice",
        "The best index rows, ties too",
        "int32",
        "exact",
        0.0,
        "a choice has one right answer",
    ),
    Twin(
        "pooled_rows",
        "Pooling of windows over any cut",
        "float32",
        "relative",
        1e-5,
        "a softmax over at most 256 slots",
    ),
    Twin(
        "streams", "Residual streams across a sub-layer", "float32", "relative", 1e-5, "sums of a few terms"
    ),
    Twin(
        "sub_layer_input",
        "The normed input of the next sub-layer",
        "BF16",
        "relative",
        5e-3,
        "stored with 8 bits of precision, one step is 0.4 %",
    ),
    Twin(
        "chunk_attention",
        "Attention of a chunk over window and rows",
        "BF16",
        "relative",
        2e-2,
        "weights and rows in BF16, up to hundreds of terms",
    ),
)


def cases(sizes: Sizes) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Every case of the first table: pair, name, and what it is run with."""
    return [(pair.id, name, case) for pair in PAIRS for name, case in pair.cases(sizes).items()]


def pair(pair_id: str) -> Pair:
    """The pair of this id; KeyError if there is none."""
    return {one.id: one for one in PAIRS}[pair_id]


def twin(twin_id: str) -> Twin:
    """The twin of this id; KeyError if there is none."""
    return {one.id: one for one in TWINS}[twin_id]
