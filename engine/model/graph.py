"""The model as one pass: token ids of several sequences in, residual streams and logits out.

Owns the order of the layers and nothing else; caches and weights arrive from outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.sequence import LayerShape, SequenceCache
from engine.kernels.ref.linear import whole
from engine.model.attention import Attention
from engine.model.hyper import Head, Site
from engine.model.moe import Experts
from engine.model.ops import Ops, TensorSource
from engine.model.step import Span, Step


class Layer:
    """One transformer layer: attention, then experts, each inside its hyper-connection."""

    def __init__(self, ops: Ops, source: TensorSource, layer: int) -> None:
        self._attn_site = Site(ops, source, layer, "attn")
        self.attention = Attention(ops, source, layer)
        self._ffn_site = Site(ops, source, layer, "ffn")
        self._experts = Experts(ops, source, layer)

    def __call__(self, streams: Tensor, step: Step) -> Tensor:
        """Streams [T, n, C] after this layer."""
        streams = self._attn_site(streams, lambda h: self.attention(h, step))
        return self._ffn_site(streams, lambda h: self._experts(h, step.ids, step.rows))


class Graph:
    """All layers of one model with their weights, ready to run."""

    def __init__(self, ops: Ops, source: TensorSource) -> None:
        self._ops = ops
        self._embedding = source.tensor("token_embd.weight")
        self._layers = [Layer(ops, source, layer) for layer in range(ops.spec.n_layer)]
        self._head = Head(ops, source)

    def shapes(self) -> tuple[LayerShape, ...]:
        """What a sequence keeps in each layer."""
        return tuple(layer.attention.shape() for layer in self._layers)

    def forward(self, slices: Sequence[tuple[SequenceCache, Sequence[int]]]) -> Tensor:
        """Final streams [T, n, C] of all slices' tokens in order; every cache advances by its slice.

        Raises CapacityError before anything is computed when a cache finds no page for its tokens.
        """
        step = self._step(slices)
        streams = self._embedding[step.ids].unsqueeze(1).repeat(1, self._ops.spec.hc_count, 1)
        for layer in self._layers:
            streams = layer(streams, step)
        for span in step.spans:
            span.cache.length = span.end
        return streams[: step.rows]

    def logits(self, streams: Tensor) -> Tensor:
        """Logits [T, V] of final streams [T, n, C]."""
        return self._head(streams)

    def _step(self, slices: Sequence[tuple[SequenceCache, Sequence[int]]]) -> Step:
        spans: list[Span] = []
        ids: list[int] = []
        positions: list[int] = []
        for cache, tokens in slices:
            cache.grow(cache.length + len(tokens))
            start = len(ids)
            ids.extend(tokens)
            positions.extend(range(cache.length, cache.length + len(tokens)))
            spans.append(Span(cache, start, len(ids), cache.length))
        rows = len(ids)
        idle = [0] * (whole(rows) - rows)
        at = torch.tensor(positions + idle)
        return Step(
            rows=rows,
            ids=torch.tensor(ids + idle),
            plain=self._ops.rotation(at, scaled=False),
            scaled=self._ops.rotation(at, scaled=True),
            spans=tuple(spans),
        )
