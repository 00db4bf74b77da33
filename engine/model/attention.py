"""Attention of one layer over its raw window and, by kind, its compressed rows.

Queries run in pieces that never cross a multiple of the window size: a piece sees two tiles of raw rows, the
block of positions it stands in and the block before, whatever chunk it arrived in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.sequence import LayerCache, LayerShape
from engine.cache.store import Rows
from engine.kernels.ref.attention import ROW_TILE, Tile, Window, attend
from engine.kernels.ref.index import INDEX_TILE
from engine.kernels.ref.norm import rms_norm
from engine.model.compressor import Compressor
from engine.model.indexer import Indexer
from engine.model.ops import Ops, Rotation, TensorSource, groups, joined
from engine.model.spec import SPARSE_RATIO
from engine.model.step import Closed, Span, Step

_PIECE_VALUES = 1 << 24  # most values of any one intermediate tensor of a piece: 64 MiB


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Projections of a step's rows."""

    q: Tensor  # [T, H, D], neither normed nor rotated yet: a piece at a time stays in the core's cache
    kv: Tensor  # [T, stored], as the window keeps them
    main: Tensor | None  # [T, collected] of the compressor
    index: Tensor | None  # [T, collected] of the indexer's compressor
    index_q: Tensor | None  # [T, heads, dim]
    index_weights: Tensor | None  # [T, heads]


class Attention:
    """The attention sub-layer of one layer, of any kind."""

    def __init__(self, ops: Ops, source: TensorSource, layer: int) -> None:
        spec, prefix = ops.spec, f"blk.{layer}."
        self._ops = ops
        self._layer = layer
        self._codec = ops.codec("window")
        self._ratio = spec.ratios[layer]
        self._enter = joined(source, [prefix + "attn_q_a.weight", prefix + "attn_kv.weight"], rounded=True)
        self._q_norm = source.tensor(prefix + "attn_q_a_norm.weight")
        self._kv_norm = source.tensor(prefix + "attn_kv_a_norm.weight")
        self._q_b = joined(source, [prefix + "attn_q_b.weight"])
        self._sinks = source.tensor(prefix + "attn_sinks.weight")
        self._leave_a = groups(source, prefix + "attn_output_a.weight", spec.o_groups)
        self._leave_b = joined(source, [prefix + "attn_output_b.weight"])
        self._main: Compressor | None = None
        self._indexer: Indexer | None = None
        if self._ratio:
            self._add_compression(source, prefix)

    def _add_compression(self, source: TensorSource, prefix: str) -> None:
        main = prefix + "attn_compressor"
        names = Compressor.matrices(main)
        self._main = Compressor(self._ops, source, main, ratio=self._ratio, role="compressed")
        if self._ratio == SPARSE_RATIO:
            index = prefix + "indexer_compressor"
            names += [*Compressor.matrices(index), prefix + "indexer.proj.weight"]
            self._index = Compressor(self._ops, source, index, ratio=self._ratio, role="index")
            self._indexer = Indexer(self._ops, source, self._layer)
        self._collect = joined(source, names, rounded=True)

    def shape(self) -> LayerShape:
        """What the cache keeps for this layer."""
        main = self._main.shape() if self._main else None
        index = self._index.shape() if self._indexer else None
        return LayerShape(self._ops.spec.window, self._codec.stored, self._codec.dtype, main, index)

    def __call__(self, h: Tensor, step: Step) -> Tensor:
        """Output [T, C] of normed rows [T, C]; advances the caches of all spans."""
        rotation = step.scaled if self._ratio else step.plain
        inputs = self._project(h, step)
        outs: list[Tensor] = []
        for span in step.spans:
            cache = span.cache.layers[self._layer]
            self._compress(inputs, cache, span)
            for piece in self._pieces(span):
                out = self._attend(inputs, rotation, cache, piece)
                outs.append(rotation.turn(out, first=piece.start, inverse=True))
        if step.rows < len(h):  # idle rows again, which `_project` left out of the queries
            outs.append(outs[0][:1].expand(len(h) - step.rows, -1, -1))
        o = torch.cat(outs).view(len(h), self._ops.spec.o_groups, -1)
        return self._ops.linear(self._ops.grouped(o, self._leave_a).flatten(1), self._leave_b)

    def _project(self, h: Tensor, step: Step) -> _Inputs:
        spec = self._ops.spec
        rotation = step.scaled if self._ratio else step.plain
        low, kv = torch.split(self._ops.linear(h, self._enter), [spec.q_rank, spec.head_dim], 1)
        qr = rms_norm(low, self._q_norm, spec.rms_eps)
        q = self._ops.linear(qr, self._q_b)[: step.rows].view(-1, spec.n_head, spec.head_dim)
        kv = rotation.turn(rms_norm(kv, self._kv_norm, spec.rms_eps))
        main = self._ops.linear(h, self._collect) if self._main else None
        index = index_q = index_weights = None
        if self._indexer and self._main and main is not None:
            sizes = [self._main.collected, self._index.collected, spec.index_heads]
            main, index, index_weights = torch.split(main, sizes, 1)
            if any(span.end // self._ratio > spec.index_topk for span in step.spans):
                index_q = self._indexer.queries(qr, rotation)
        return _Inputs(q, self._codec.pack(kv), main, index, index_q, index_weights)

    def _compress(self, inputs: _Inputs, cache: LayerCache, span: Span) -> None:
        rows = slice(span.start, span.stop)
        if self._main and cache.main and inputs.main is not None:
            self._main.push(cache.main, inputs.main[rows], span.position)
        if self._indexer and cache.index and inputs.index is not None:
            self._index.push(cache.index, inputs.index[rows], span.position)

    def _pieces(self, span: Span) -> Iterator[Span]:
        """Cut a span at multiples of the window size, and further where intermediates would grow large."""
        window, start, position = self._ops.spec.window, span.start, span.position
        most = self._piece_rows(span.end)
        while start < span.stop:
            count = min(span.stop - start, window - position % window, most)
            yield Span(span.cache, start, start + count, position)
            start += count
            position += count

    def _piece_rows(self, length: int) -> int:
        """Most queries of a piece when `length` tokens are cached; bounds every intermediate tensor."""
        spec = self._ops.spec
        rows = length // self._ratio if self._ratio else 0
        widest = spec.n_head * (spec.window + rows)
        if self._indexer:
            widest = max(spec.index_heads * INDEX_TILE, rows, spec.index_topk * spec.head_dim)
        return max(1, _PIECE_VALUES // widest)

    def _attend(self, inputs: _Inputs, rotation: Rotation, cache: LayerCache, piece: Span) -> Tensor:
        """Write the piece's rows into the ring and attend: [n, H, D]."""
        rows = slice(piece.start, piece.stop)
        window, count = self._ops.spec.window, piece.stop - piece.start
        place = piece.position % window
        places = slice(place, place + count)
        alone, first = count == 1, piece.position < window
        before = None if alone or first else self._codec.unpack(cache.ring.clone())
        cache.ring[places] = inputs.kv[rows]
        own = self._codec.unpack(cache.ring)
        before = own if alone and not first else before
        near = Window(own, before, self._ops.mine[places], self._ops.shares[places])
        tiles: list[Tile] = []
        if self._main and cache.main:
            tiles = self._far(inputs, cache, piece, Closed(piece.position, count, self._ratio))
        q = rotation.turn(rms_norm(inputs.q[rows], None, self._ops.spec.rms_eps), first=piece.start)
        return attend(q, near, tiles, self._sinks)

    def _far(self, inputs: _Inputs, cache: LayerCache, piece: Span, closed: Closed) -> list[Tile]:
        """Tiles of the compressed rows that the piece's queries may see."""
        assert self._main is not None
        assert cache.main is not None
        rows, topk = cache.main.rows, self._ops.spec.index_topk
        if not self._indexer:
            return self._tiles(rows, ROW_TILE, closed)
        if closed.most <= topk:
            return self._tiles(rows, topk, closed)
        assert cache.index is not None
        assert inputs.index_q is not None
        assert inputs.index_weights is not None
        mine = slice(piece.start, piece.stop)
        q, weights = inputs.index_q[mine], inputs.index_weights[mine]
        chosen = self._indexer.select(q, weights, cache.index.rows, closed)
        picked = self._main.codec.unpack(rows.pick(chosen.flatten()))
        if len(chosen) > 1:
            picked = picked.view(*chosen.shape, -1)
        return [Tile(picked, self._shown(closed, 0, topk))]

    def _tiles(self, rows: Rows, size: int, closed: Closed) -> list[Tile]:
        """Tiles of consecutive rows that cover all closed ones."""
        assert self._main is not None
        if not closed.most:
            return []
        values = self._main.codec.unpack(rows.read(0, -(-closed.most // size) * size))
        starts = range(0, len(values), size)
        return [Tile(values[start : start + size], self._shown(closed, start, size)) for start in starts]

    def _shown(self, closed: Closed, start: int, size: int) -> Tensor | None:
        """Bias [T, size] that hides rows not closed yet, None if there are none."""
        if closed.least >= start + size:
            return None
        if closed.least == closed.most:
            return self._ops.stairs[closed.most - start, :size].unsqueeze(0)
        return self._ops.stairs[(closed.each - start).clamp_(0, size), :size]
