"""What sequences keep on a device: rows in pages, raw windows as rings, collected tokens in float32.

A page is 128 tokens; a layer's rows of a page lie together in that layer's pool.  Which page a sequence uses
is decided outside and handed in as a table.  Rows are packed; wide ones (float32 of the same values) exist to
compare with: the kernels are the same and their results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.kernels.ref.rows import unpack_index, unpack_kv
from engine.kernels.rows import IndexLayout, KvLayout, Storage
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.kernels.triton.project import RING
from engine.model.spec import SPARSE_RATIO, ModelSpec


@dataclass(frozen=True, slots=True)
class StreamCache:
    """One compressed stream: rows [pages * rows a page, stored], uint8 packed or float32 wide; collected keys
    and scores [slots, ring, channels]."""

    pool: Tensor
    keys: Tensor
    scores: Tensor


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer: the ring [slots, RING, stored] and its compressed streams."""

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
        cls,
        spec: ModelSpec,
        device: torch.device,
        *,
        slots: int,
        pages: int,
        most: int,
        storage: Storage = "packed",
    ) -> DeviceCache:
        """Room for `slots` sequences of at most `most` pages each, `pages` in all."""
        room = _Room(device, slots, pages, storage)
        layers = tuple(room.layer(spec, ratio) for ratio in spec.ratios[: spec.n_layer])
        return cls(layers, torch.zeros(slots, most, dtype=torch.int32, device=device), pages)

    @property
    def context(self) -> int:
        """Tokens that one sequence can hold."""
        return self.table.shape[1] * PAGE_TOKENS

    @property
    def storage(self) -> Storage:
        """How rows are stored."""
        return "packed" if self.layers[0].ring.dtype == torch.uint8 else "wide"

    def widened(self, spec: ModelSpec) -> DeviceCache:
        """A copy of a packed cache whose rows are wide."""
        kv, index = KvLayout(spec.nope_dim, spec.rope_dim), IndexLayout(spec.index_dim)

        def stream(packed: StreamCache | None, unpack: Callable[[Tensor], Tensor]) -> StreamCache | None:
            if packed is None:
                return None
            return StreamCache(unpack(packed.pool), packed.keys.clone(), packed.scores.clone())

        layers = tuple(
            LayerCache(
                unpack_kv(layer.ring, kv),
                stream(layer.main, partial(unpack_kv, layout=kv)),
                stream(layer.index, partial(unpack_index, layout=index)),
            )
            for layer in self.layers
        )
        return DeviceCache(layers, self.table.clone(), self.pages)


@dataclass(frozen=True, slots=True)
class _Room:
    """How much an empty cache holds, where, and how."""

    device: torch.device
    slots: int
    pages: int
    storage: Storage

    def layer(self, spec: ModelSpec, ratio: int) -> LayerCache:
        kv, index = KvLayout(spec.nope_dim, spec.rope_dim), IndexLayout(spec.index_dim)
        ring = self._rows(kv, self.slots, RING)
        if not ratio:
            return LayerCache(ring, None, None)
        sparse = ratio == SPARSE_RATIO
        return LayerCache(ring, self._stream(kv, ratio), self._stream(index, ratio) if sparse else None)

    def _stream(self, layout: KvLayout | IndexLayout, ratio: int) -> StreamCache:
        """Windows of ratio 4 overlap: two of them are kept, and twice the channels."""
        factor = 2 if ratio == SPARSE_RATIO else 1
        shape = (self.slots, factor * ratio, factor * layout.width)
        keys, scores = (torch.zeros(shape, device=self.device) for _ in range(2))
        return StreamCache(self._rows(layout, self.pages * (PAGE_TOKENS // ratio)), keys, scores)

    def _rows(self, layout: KvLayout | IndexLayout, *count: int) -> Tensor:
        if self.storage == "wide":
            return torch.zeros(*count, layout.width, device=self.device)
        return torch.zeros(*count, layout.nbytes, dtype=torch.uint8, device=self.device)
