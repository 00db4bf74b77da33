"""What sequences keep on a device: packed rows in pages, raw windows as rings, collected tokens in float32.

A page is 128 tokens; a layer's rows of a page lie together in that layer's pool.  Which page a sequence uses
is decided outside and handed in as a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.rows import IndexLayout, KvLayout
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.kernels.triton.project import RING
from engine.model.spec import SPARSE_RATIO, ModelSpec


@dataclass(frozen=True, slots=True)
class StreamCache:
    """One compressed stream: rows uint8 [pages * rows a page, bytes], collected keys and scores [slots,
    ring, channels]."""

    pool: Tensor
    keys: Tensor
    scores: Tensor


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer: the ring uint8 [slots, RING, bytes] and its compressed streams."""

    ring: Tensor
    main: StreamCache | None
    index: StreamCache | None


@dataclass(frozen=True, slots=True)
class DeviceCache:
    """All layers of `slots` sequences that share `pages` pages; `table` int32 [slots, most pages a
    sequence]."""

    layers: tuple[LayerCache, ...]
    table: Tensor
    pages: int

    @classmethod
    def empty(
        cls, spec: ModelSpec, device: torch.device, *, slots: int, pages: int, most: int
    ) -> DeviceCache:
        """Room for `slots` sequences of at most `most` pages each, `pages` in all."""
        layers = tuple(_layer(spec, ratio, device, slots, pages) for ratio in spec.ratios[: spec.n_layer])
        return cls(layers, torch.zeros(slots, most, dtype=torch.int32, device=device), pages)

    @property
    def context(self) -> int:
        """Tokens that one sequence can hold."""
        return self.table.shape[1] * PAGE_TOKENS


def _layer(spec: ModelSpec, ratio: int, device: torch.device, slots: int, pages: int) -> LayerCache:
    row = KvLayout(spec.nope_dim, spec.rope_dim).nbytes
    ring = torch.zeros(slots, RING, row, dtype=torch.uint8, device=device)
    if not ratio:
        return LayerCache(ring, None, None)
    sparse = ratio == SPARSE_RATIO
    main = _stream(device, slots, pages, ratio, spec.head_dim, row)
    index = (
        _stream(device, slots, pages, ratio, spec.index_dim, IndexLayout(spec.index_dim).nbytes)
        if sparse
        else None
    )
    return LayerCache(ring, main, index)


def _stream(device: torch.device, slots: int, pages: int, ratio: int, width: int, row: int) -> StreamCache:
    """Windows of ratio 4 overlap: two of them are kept, and twice the channels."""
    factor = 2 if ratio == SPARSE_RATIO else 1
    state = [torch.zeros(slots, factor * ratio, factor * width, device=device) for _ in range(2)]
    return StreamCache(
        torch.zeros(pages * (PAGE_TOKENS // ratio), row, dtype=torch.uint8, device=device), *state
    )
