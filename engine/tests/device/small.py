"""A model small enough for Triton's interpreter, and the reference engine over the same random weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.cache.frontier import Frontier
from engine.cache.sequence import SequenceCache, new_pool
from engine.device.cache import DeviceCache
from engine.device.cache import LayerCache as DeviceLayer
from engine.device.synthetic import Synthetic
from engine.gguf.quants import QuantType, decode
from engine.kernels.ref.rounding import Numerics
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.kernels.triton.project import RING
from engine.model.graph import Graph
from engine.model.ops import Ops
from engine.model.published import SPECS
from engine.model.spec import ModelSpec

SMALL = replace(
    SPECS["v4-flash"],
    n_layer=4,
    hidden=256,
    vocab=256,
    n_head=16,
    head_dim=256,
    q_rank=256,
    o_groups=2,
    o_rank=128,
    ratios=(0, 4, 128, 4),
    index_heads=16,
    index_topk=32,
    n_expert=16,
    n_expert_used=3,
    expert_width=256,
    n_hash_layer=2,
    swiglu_limits=(10.0,) * 4,
)


class Decoded:
    """Synthetic tensors decoded to float32: what the reference graph reads."""

    def __init__(self, spec: ModelSpec, seed: int) -> None:
        self._source = Synthetic(spec, torch.device("cpu"), seed)
        self._shapes = {tensor.name: tensor.shape for tensor in self._source.tensors()}

    def tensor(self, name: str) -> Tensor:
        """Values, input dimension last."""
        raw, kind = self._source.raw(name), self._source.type(name)
        if raw.dtype != torch.uint8:
            return raw if kind is QuantType.I32 else raw.float()
        return torch.from_numpy(decode(raw.flatten().numpy(), kind, self._shapes[name]))

    def type(self, name: str) -> QuantType:
        """Block format."""
        return self._source.type(name)


def reference(spec: ModelSpec, seed: int) -> Graph:
    """The reference graph with the model's own roundings."""
    return Graph(Ops(spec, Numerics()), Decoded(spec, seed))


def transfer(sequence: SequenceCache, cache: DeviceCache, slot: int, first_page: int) -> None:
    """Copy a reference sequence into a slot of a device cache; its pages are `first_page` and those after
    it."""
    cache.table[slot] = first_page + torch.arange(cache.table.shape[1], dtype=torch.int32)
    for source, target in zip(sequence.layers, cache.layers, strict=True):
        _window(source.ring, target, slot, sequence.length)
        for stream, device in ((source.main, target.main), (source.index, target.index)):
            if stream is None or device is None:
                continue
            ring, channels = device.keys.shape[1:]
            per_page = PAGE_TOKENS // (ring if ring > 8 else 4)
            start = first_page * per_page
            device.pool[start : start + stream.rows.count] = stream.rows.read(0, stream.rows.count)
            _frontier(stream.frontier, device.keys[slot], device.scores[slot], sequence.length, channels)


def _window(rows: Tensor, target: DeviceLayer, slot: int, length: int) -> None:
    for position in range(max(0, length - len(rows)), length):
        target.ring[slot, position % RING] = rows[position % len(rows)]


def _frontier(frontier: Frontier, keys: Tensor, scores: Tensor, length: int, channels: int) -> None:
    """Collected tokens to their places in the rings: the half-filled window, and the whole one before it."""
    state, ring = frontier.freeze(), len(keys)
    pending = length % (ring if ring > 8 else 4)
    tokens = [(length - pending + at, state.pending[at]) for at in range(pending)]
    if state.last is not None:
        tokens += [(length - pending - len(state.last) + at, state.last[at]) for at in range(len(state.last))]
    for position, values in tokens:
        keys[position % ring], scores[position % ring] = values[:channels], values[channels:]


def sequence_of(graph: Graph, tokens: list[int]) -> SequenceCache:
    """A reference sequence after `tokens`."""
    shapes = graph.shapes()
    sequence = SequenceCache(shapes, new_pool(shapes, 1 << 24))
    advance(graph, sequence, tokens)
    return sequence


def advance(graph: Graph, sequence: SequenceCache, tokens: list[int]) -> Tensor:
    """Logits [T, V] of the next tokens of a reference sequence."""
    sequence.grow(sequence.length + len(tokens))
    return graph.logits(graph.forward([(sequence, tokens)]))
