"""The indexer of a sparse layer: which compressed rows a query looks at once there are more than it may."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache.store import Rows
from engine.kernels.ref import index
from engine.kernels.ref.index import INDEX_TILE
from engine.kernels.ref.lanes import constant
from engine.model.ops import Ops, Rotation, TensorSource, joined
from engine.model.step import Closed

UNPACKED_ROWS = 8 * INDEX_TILE  # rows that are unpacked at once: each call has a price of its own


class Indexer:
    """Scores and selection of one layer."""

    def __init__(self, ops: Ops, source: TensorSource, layer: int) -> None:
        spec = ops.spec
        self._ops = ops
        self._codec = ops.codec("index")
        self._query = joined(source, [f"blk.{layer}.indexer.attn_q_b.weight"], rounded=True)
        self._scale = (spec.index_heads * spec.index_dim) ** -0.5

    def queries(self, qr: Tensor, rotation: Rotation) -> Tensor:
        """Index queries [T, heads, dim] of the low-rank queries [T, q_rank]."""
        spec = self._ops.spec
        q = self._ops.linear(qr, self._query).view(-1, spec.index_heads, spec.index_dim)
        return self._ops.index(rotation.turn(q))

    def select(self, q: Tensor, weights: Tensor, rows: Rows, closed: Closed) -> Tensor:
        """Rows [T, k] that each query looks at, ascending, of the rows closed for it.

        A query with fewer than k closed rows gets them all, then rows that it must not see.
        """
        weights = weights * constant(self._scale)
        tiles = []
        for start in range(0, closed.most, UNPACKED_ROWS):
            count = -(-min(UNPACKED_ROWS, closed.most - start) // INDEX_TILE) * INDEX_TILE
            keys = self._codec.unpack(rows.read(start, count))
            tiles += [index.scores(q, tile, weights) for tile in keys.split(INDEX_TILE)]
        score = tiles[0] if len(tiles) == 1 else torch.cat(tiles, 1)
        score[:, closed.most :] = float("-inf")
        if closed.least < closed.most:
            later = torch.arange(closed.least, closed.most) >= closed.each.unsqueeze(1)
            score[:, closed.least : closed.most].masked_fill_(later, float("-inf"))
        return index.select(score, self._ops.spec.index_topk)
