"""What all pairs are run on: the embedded model in both storages, seeded prompts, and states as arrays.

Imports the engine: only the process of `bench` may import this.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.cache.sequence import SequenceCache
from engine.kernels.ref.rounding import Numerics
from engine.kernels.ref.rows import RowCodec
from engine.kernels.rows import Storage
from engine.model.ops import Ops, Role
from engine.model.spec import SPARSE_RATIO, ModelSpec
from engine.runner import Runner, Threads
from engine.scheduler.scheduler import SchedulerLimits
from gates.equivalence.seen import LOGITS, Seen
from gates.equivalence.table import Sizes

POOL_BYTES = 64 * 2**20  # reserved, and touched only where it is used


class Workbench:
    """Runners are loaded once; every case gets caches, and where it asks for one a pool, of its own."""

    def __init__(self, model: Path, sizes: Sizes, folder: Path, *, threads: int) -> None:
        self.model, self.sizes, self.folder = model, sizes, folder
        self._threads = Threads(1, threads)
        self._runners: dict[tuple[Storage, Numerics], Runner] = {}
        self._wholes: dict[tuple[int, int], Seen] = {}
        self._folders = 0

    def runner(self, storage: Storage = "packed", numerics: Numerics | None = None) -> Runner:
        """The model with rows in this storage, and other roundings if they are given."""
        kind = (storage, numerics or Numerics())
        if kind not in self._runners:
            loaded = Runner(self.model, storage=storage, numerics=kind[1], threads=self._threads)
            self._runners[kind] = loaded
        return self._runners[kind].beside(cache_bytes=POOL_BYTES)

    def tokens(self, count: int, stream: int = 0) -> list[int]:
        """Seeded ids; streams differ from their first token on."""
        drawn = random.Random(f"{self.sizes.seed}/tokens/{stream}")
        vocab = self.runner().spec.vocab
        return [1 + stream, *(drawn.randrange(vocab) for _ in range(count - 1))][:count]

    def whole(self, count: int, stream: int = 0) -> Seen:
        """A prompt in one pass: all logits, and the state after it."""
        if (count, stream) not in self._wholes:
            runner = self.runner()
            cache = runner.new_cache()
            self._wholes[count, stream] = in_chunks(runner, cache, self.tokens(count, stream), [count])
        return self._wholes[count, stream]

    def new_folder(self) -> Path:
        """A folder that no other case has."""
        self._folders += 1
        path = self.folder / str(self._folders)
        path.mkdir()
        return path


def in_chunks(runner: Runner, cache: SequenceCache, tokens: Sequence[int], sizes: Sequence[int]) -> Seen:
    """Logits of every token of a prompt that is computed in chunks of these sizes, and the state after it."""
    parts, at = [], 0
    for size in (*sizes, len(tokens) - sum(sizes)):
        if size:
            parts.append(runner.score(cache, tokens[at : at + size]).numpy())
        at += size
    return {LOGITS: np.concatenate(parts)} | state(cache)


def state(cache: SequenceCache) -> Seen:
    """Everything that a sequence keeps, copied: rows, windows, frontiers."""
    with torch.inference_mode():
        found = cache.arrays({})
    return {name: np.array(array) for name, array in sorted(found.items())}


def as_values(seen: Seen, spec: ModelSpec, storage: Storage) -> Seen:
    """A state with its rows as the float32 values that they stand for."""
    ops = Ops(spec, Numerics(), storage)
    codecs = {role: ops.codec(role) for role in _ROLES}
    streams = [role for ratio in spec.ratios for role in _streams(ratio)]

    def unpacked(name: str, array: NDArray[Any]) -> NDArray[Any]:
        if name.startswith("rows."):
            return _unpacked(codecs[streams[int(name.removeprefix("rows."))]], array)
        return _unpacked(codecs["window"], array) if name.endswith("ring") else array

    return {name: unpacked(name, array) for name, array in seen.items()}


_ROLES: tuple[Role, ...] = ("window", "compressed", "index")


def _streams(ratio: int) -> tuple[Role, ...]:
    """The streams of a layer of this ratio, in order."""
    if ratio == SPARSE_RATIO:
        return ("compressed", "index")
    return ("compressed",) if ratio else ()


def _unpacked(codec: RowCodec, array: NDArray[Any]) -> NDArray[Any]:
    if not len(array):
        return np.zeros(0, np.float32)
    found: NDArray[Any] = codec.unpack(torch.from_numpy(array)).numpy()
    return found


def edges(spec: ModelSpec, page: int, limits: SchedulerLimits) -> dict[str, int]:
    """Every edge of a model and its scheduler that a table of cases must have, in tokens."""
    ratios = sorted({ratio for ratio in spec.ratios if ratio})
    return {
        **{f"ratio {ratio}": ratio for ratio in ratios},
        "page": page,
        "window": spec.window,
        "second window": 2 * spec.window,
        "last token that sees all index rows": spec.index_topk * SPARSE_RATIO,
        "first token that must choose": (spec.index_topk + 1) * SPARSE_RATIO,
        "prefill chunk beside decoding": limits.prefill_chunk_live,
    }
