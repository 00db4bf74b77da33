"""Compression of one layer's tokens into rows: pools closed windows, norms, rotates, rounds, stores.

Serves both kinds of ratio, and the indexer, whose rows are narrower and rounded differently.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache.sequence import Stream
from engine.cache.store import StreamShape
from engine.kernels.ref import compress
from engine.kernels.ref.norm import rms_norm
from engine.model.ops import Ops, Role, TensorSource
from engine.model.spec import SPARSE_RATIO


class Compressor:
    """One stream of compressed rows; its two matrices are joined with the layer's others by the caller."""

    def __init__(self, ops: Ops, source: TensorSource, prefix: str, *, ratio: int, role: Role) -> None:
        self._ops = ops
        self._role: Role = role
        self.codec = ops.codec(role)
        self._ratio = ratio
        self._norm = source.tensor(prefix + "_norm.weight")
        self._ape = source.tensor(prefix + "_ape.weight")  # [ratio, channels]
        self._channels = self._ape.shape[1]

    @staticmethod
    def matrices(prefix: str) -> list[str]:
        """Names of the projections whose outputs, side by side, `push` takes."""
        return [prefix + "_kv.weight", prefix + "_gate.weight"]

    @property
    def collected(self) -> int:
        """Values collected per token: keys and scores of all channels."""
        return 2 * self._channels

    def shape(self) -> StreamShape:
        """What the cache needs to know."""
        overlap = self._ratio == SPARSE_RATIO
        return StreamShape(self._ratio, self.collected, self.codec.stored, self.codec.dtype, overlap)

    def push(self, stream: Stream, z: Tensor, position: int) -> None:
        """Add projections [T, 2 channels] of the tokens from `position` on; closed windows become rows.

        The projections are finished in place: the position within the window enters the scores.
        """
        count, phase = z.shape[0], position % self._ratio
        if count == 1:
            places = self._ape[phase : phase + 1]
        else:
            places = self._ape[torch.arange(phase, phase + count) % self._ratio]
        z[:, self._channels :].add_(places)
        closed = stream.frontier.push(z)
        if closed is not None:
            stream.rows.append(self._rows(*closed, first=stream.rows.count))

    def _rows(self, windows: Tensor, before: Tensor | None, *, first: int) -> Tensor:
        """Stored rows [n, stored] of closed windows [n, ratio, 2 channels]."""
        keys, scores = torch.split(windows, self._channels, -1)
        if self._ratio == SPARSE_RATIO:
            keys, scores = self._overlapped(keys, scores, before)
        pooled = rms_norm(compress.pool(keys, scores), self._norm, self._ops.spec.rms_eps)
        positions = (first + torch.arange(windows.shape[0])) * self._ratio  # first token of each window
        turned = self._ops.rotation(positions, scaled=True).turn(pooled)
        return self.codec.pack(self._ops.spread(turned) if self._role == "index" else turned)

    def _overlapped(self, keys: Tensor, scores: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Slots of overlapping windows; nothing came before the first one."""
        if before is None:
            nothing = (torch.zeros_like(keys[0]), torch.full_like(scores[0], float("-inf")))
        else:
            nothing = (before[:, : self._channels], before[:, self._channels :])
        return compress.overlap_slots(keys, nothing[0]), compress.overlap_slots(scores, nothing[1])
