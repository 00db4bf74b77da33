"""Runs the model on slices of sequences: every tensor, no decision.

Several sequences go through one batched pass.  The bits of a row never depend on what runs beside it, on
how a prompt was cut into slices, or on the number of threads, if `exactness` says so for this machine.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from engine.cache.pages import Ledger, PageTable
from engine.cache.sequence import SequenceCache, new_pool
from engine.gguf.file import GGUFFile
from engine.kernels.ref.rounding import Numerics
from engine.kernels.rows import Storage
from engine.model import tensors
from engine.model.graph import Graph
from engine.model.ops import Ops
from engine.model.selfcheck import Exactness, check_rows
from engine.model.spec import ModelSpec
from engine.weights.local import LocalWeights

FINGERPRINT_BYTES = 4096  # of every tensor: a whole file of 80 GB would take a minute
Slice = tuple[SequenceCache, Sequence[int]]  # a sequence and its next tokens


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads for steps of at most `small_rows` rows, and the most for larger ones."""

    small: int
    large: int
    small_rows: int = 8


class Pace:
    """Chooses between one thread and all for large steps by what the last ones took.

    On idle cores all threads are faster.  Beside other busy processes every product waits for the slowest
    thread, and one is: measured 1,170 against 630 tokens a second.  The choice changes no bit.
    """

    RETRY_STEPS = 10  # the slower choice is tried again once in so many steps
    LEAST_ROWS = 100  # of a step that is worth timing

    def __init__(self, threads: Threads) -> None:
        self._choices = sorted({1, threads.large}, reverse=True)
        self._seconds_per_row: dict[int, float] = {}
        self._steps = 0

    def choose(self) -> int:
        """Threads for the next large step."""
        for choice in self._choices:
            if choice not in self._seconds_per_row:
                return choice
        self._steps += 1
        ranked = sorted(self._choices, key=lambda choice: self._seconds_per_row[choice])
        return ranked[-1] if self._steps % self.RETRY_STEPS == 0 else ranked[0]

    def record(self, threads: int, rows: int, seconds: float) -> None:
        """What a step took; short ones say nothing."""
        if rows >= self.LEAST_ROWS:
            self._seconds_per_row[threads] = seconds / rows


class Runner:
    """One loaded model."""

    def __init__(
        self,
        file: GGUFFile | str | Path,
        *,
        numerics: Numerics | None = None,
        storage: Storage = "packed",
        cache_bytes: int = 2**30,
        threads: Threads | None = None,
        ops: type[Ops] = Ops,
    ) -> None:
        """Load and check a model file; ModelFileError says what is wrong with it.

        `storage` is how cached rows lie in memory and changes no bit of any result; `cache_bytes` bounds
        the rows of all sequences together and is touched only where it is used.
        """
        opened = file if isinstance(file, GGUFFile) else GGUFFile.open(file)
        self.spec = ModelSpec.from_metadata(opened.metadata)
        tensors.check(opened, self.spec)
        self._threads = threads or Threads(1, torch.get_num_threads())
        self._pace = Pace(self._threads)
        self._graph = Graph(ops(self.spec, numerics or Numerics(), storage), LocalWeights(opened))
        self._shapes = self._graph.shapes()
        self._pool = new_pool(self._shapes, cache_bytes)
        self.exactness: Exactness = check_rows(self.spec)
        self.fingerprint = _fingerprint(opened, self.spec, repr((numerics or Numerics(), storage)))

    def beside(self, *, cache_bytes: int, threads: Threads | None = None) -> Runner:
        """The same weights with a cache of its own, and with other threads if they are given."""
        twin = copy.copy(self)
        twin._pool = new_pool(self._shapes, cache_bytes)
        twin._threads = threads or self._threads
        twin._pace = Pace(twin._threads)
        return twin

    @property
    def ledger(self) -> Ledger:
        """The pages that all sequences share."""
        return self._pool.ledger

    @property
    def device_bytes(self) -> int:
        """Bytes that torch's allocator holds of the device's memory, in use or not; 0 on a CPU."""
        return torch.cuda.memory_reserved() if torch.cuda.is_initialized() else 0

    def new_cache(self, table: PageTable | None = None) -> SequenceCache:
        """An empty sequence, over the pages of a table or over pages of its own."""
        return SequenceCache(self._shapes, self._pool, table)

    @torch.inference_mode()
    def step(self, slices: Sequence[Slice]) -> Tensor:
        """Advance every sequence by its tokens; float32 logits [B, V] of each slice's last token."""
        streams = self._run(slices)
        ends, last = 0, []
        for _, ids in slices:
            ends += len(ids)
            last.append(ends - 1)
        return self._graph.logits(streams[last])

    @torch.inference_mode()
    def score(self, cache: SequenceCache, tokens: Sequence[int]) -> Tensor:
        """Advance one sequence; float32 logits [T, V] of every token."""
        return self._graph.logits(self._run([(cache, tokens)]))

    def _run(self, slices: Sequence[Slice]) -> Tensor:
        rows = 0
        for cache, ids in slices:
            _check_slice(self.spec, cache, ids)
            rows += len(ids)
        if rows <= self._threads.small_rows:
            torch.set_num_threads(self._threads.small)
            return self._graph.forward(slices)
        threads, began = self._pace.choose(), perf_counter()
        torch.set_num_threads(threads)
        streams = self._graph.forward(slices)
        self._pace.record(threads, rows, perf_counter() - began)
        return streams


def _fingerprint(file: GGUFFile, spec: ModelSpec, rows: str) -> str:
    """What stored states depend on: the shape, the kind of rows, and the head of every tensor."""
    found = hashlib.sha256(f"{spec!r} {rows}".encode())
    for name, info in sorted(file.tensors.items()):
        found.update(f"{name} {info.type} {info.shape}".encode())
        found.update(bytes(file.raw(name, FINGERPRINT_BYTES)))
    return found.hexdigest()


def _check_slice(spec: ModelSpec, cache: SequenceCache, ids: Sequence[int]) -> None:
    if not ids:
        raise ValueError("a slice needs at least one token")
    if min(ids) < 0 or max(ids) >= spec.vocab:
        raise ValueError(f"token ids are 0 to {spec.vocab - 1}, found {min(ids)} to {max(ids)}")
    if cache.length + len(ids) > spec.context_length:
        raise ValueError(
            f"the model's context holds {spec.context_length} tokens, "
            f"found {cache.length} cached and {len(ids)} more; shorten the prompt"
        )
