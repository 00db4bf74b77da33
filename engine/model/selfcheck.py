"""Proves at start that this machine keeps a row's bits whatever runs beside it, for one model's shapes.

The engine's exactness claims rest on the CPU's matrix library; where the proof fails the engine says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from engine.kernels.ref import lanes
from engine.kernels.ref.attention import ROW_TILE
from engine.kernels.ref.compress import pool
from engine.kernels.ref.index import INDEX_TILE
from engine.kernels.ref.linear import ROW_BLOCK, Packed, grouped, mixed, paired, times, whole
from engine.model.spec import SPARSE_RATIO, ModelSpec

_ROWS = (2, 7, 64, 200)  # rows that run together
# Of packed products every count up to a chunk beside decoded tokens: their code is made here, once for all.
_COUNTS = tuple(sorted({whole(rows) for rows in range(1, 1033)}))
_ONE_THREAD_ROWS = 8  # so few rows are never shared among threads
_MOST_VALUES = 1 << 18  # wider matrices are cut to this many weights: the inner dimension is what matters


@dataclass(frozen=True, slots=True)
class Exactness:
    """Whether rows keep their bits here; `failed` names the products that do not."""

    failed: tuple[str, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """True if every claim of bit equality may be made."""
        return not self.failed

    def describe(self) -> str:
        """One line for the log and for `inspect`."""
        if self.holds:
            return "rows keep their bits for any batch and chunking (proved at start)"
        return "NOT exact on this machine: rows change with what runs beside them in " + ", ".join(
            self.failed
        )


@dataclass(frozen=True, slots=True)
class Case:
    """A function of rows, row by row, and rows to try it on."""

    name: str
    run: Callable[[Tensor], Tensor]
    rows: Tensor
    counts: tuple[int, ...] = _ROWS
    every: bool = False  # every count on one thread and on all, instead of the largest alone


def check_rows(spec: ModelSpec) -> Exactness:
    """Compare rows alone with rows among others, with one thread and with all, for the model's products."""
    began = perf_counter()
    failed = [case.name for case in _cases(spec) if not keeps_bits(case)]
    return Exactness(tuple(failed), perf_counter() - began)


def keeps_bits(case: Case) -> bool:
    """Whether the case's rows are the same alone and among others, on one thread and on all."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([case.run(case.rows[at : at + 1]) for at in range(ROW_BLOCK + 1)])
        shared = [size for size in case.counts if size > _ONE_THREAD_ROWS] if case.every else [max(_ROWS)]
        trials = [(1, size) for size in case.counts] + [(threads, size) for size in shared]
        for count, size in trials:
            torch.set_num_threads(count)
            seen = case.run(case.rows[:size])[: len(alone)]
            if not torch.equal(seen, alone[: len(seen)]):
                return False
    finally:
        torch.set_num_threads(threads)
    return True


def _cases(spec: ModelSpec) -> Iterator[Case]:
    generator = torch.Generator().manual_seed(1)
    most = max(_ROWS)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    for inner, outer in sorted(_projections(spec)):
        columns, rows = random(inner, max(1, min(outer, _MOST_VALUES // inner))), random(most, inner)
        yield Case(f"matmul {inner} to {outer}", _times(columns), rows)
        if Packed.packs(columns):
            yield _packed_case(spec, inner, outer, columns, random)
    for width, count in sorted(_tiles(spec)):
        rows = random(count, width)
        yield Case(f"scores of {count} rows of {width}", _times(rows.t()), random(most, width))
        yield Case(f"weighing {count} rows of {width}", _times(rows), random(most, count))
    yield _grouped_case(spec, random)
    yield _gathered_case(spec, random)
    yield _streams_case(spec, random)
    yield _pooling_case(spec, random)
    yield Case("sigmoid", lanes.sigmoid, random(most, spec.hc_count))
    yield Case("softplus", lanes.softplus, random(most, spec.n_expert))
    yield Case("silu", lanes.silu, random(most, spec.expert_width))
    yield Case("mean of squares", lambda x: x.square().mean(-1), random(most, spec.hc_count * spec.hidden))


def _times(columns: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: times(x, columns)


def _packed_case(
    spec: ModelSpec, inner: int, outer: int, columns: Tensor, random: Callable[..., Tensor]
) -> Case:
    """A packed product with every count of rows that it may come with; logits come with few."""
    name, run = f"packed matmul {inner} to {outer}", Packed(columns).times
    if outer == spec.vocab:
        return Case(name, run, random(max(_ROWS), inner))
    return Case(name, run, random(max(_COUNTS), inner), _COUNTS, every=True)


def _grouped_case(spec: ModelSpec, random: Callable[..., Tensor]) -> Case:
    width = spec.n_head * spec.head_dim // spec.o_groups
    groups = max(1, min(spec.o_groups, _MOST_VALUES // (width * spec.o_rank)))
    columns = random(groups, width, spec.o_rank)
    return Case("grouped matmul", lambda x: grouped(x, columns), random(max(_ROWS), groups, width))


def _gathered_case(spec: ModelSpec, random: Callable[..., Tensor]) -> Case:
    """Scores of heads against rows of their own; queries and rows travel in one tensor."""
    picked = min(spec.index_topk, 32)

    def run(both: Tensor) -> Tensor:
        return paired(both[:, : spec.n_head], both[:, spec.n_head :].transpose(1, 2))

    return Case("gathered scores", run, random(max(_ROWS) // 4, spec.n_head + picked, spec.head_dim))


def _pooling_case(spec: ModelSpec, random: Callable[..., Tensor]) -> Case:
    """Compression of windows; keys and scores travel in one tensor."""
    width = 2 * spec.head_dim
    return Case(
        "pooling of windows",
        lambda both: pool(*both.chunk(2, -1)),
        random(max(_ROWS) // 4, 2 * SPARSE_RATIO, width),
    )


def _streams_case(spec: ModelSpec, random: Callable[..., Tensor]) -> Case:
    """The mixing of residual streams; shares and streams travel in one tensor."""
    n = spec.hc_count

    def run(both: Tensor) -> Tensor:
        return mixed(both[:, :n, : n + 1], both[:, n:])

    return Case("mixing of streams", run, random(max(_ROWS), 2 * n + 1, max(spec.hidden, n + 1)))


def _projections(spec: ModelSpec) -> set[tuple[int, int]]:
    """Inner and outer width of the products with weights."""
    return {
        (spec.hc_count * spec.hidden, spec.hc_mix),
        (spec.hidden, spec.q_rank + spec.head_dim),
        (spec.q_rank, spec.n_head * spec.head_dim),
        (spec.o_groups * spec.o_rank, spec.hidden),
        (spec.hidden, spec.n_expert),
        (spec.hidden, 2 * spec.expert_width),
        (spec.expert_width, spec.hidden),
        (spec.hidden, spec.vocab),
    }


def _tiles(spec: ModelSpec) -> set[tuple[int, int]]:
    """Width and number of the shared rows that queries are compared with at once."""
    return {
        (spec.head_dim, spec.window),
        (spec.head_dim, ROW_TILE),
        (spec.index_dim, INDEX_TILE),
    }
