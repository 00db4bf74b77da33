"""Prefill: one chunk of one sequence through all layers, leaving the cache as decode goes on from it.

The host knows positions and lengths, so every launch is laid out ahead and nothing waits for the device.
Dense products run as BF16 on expanded weights, products with float16 weights as float16 (docs/numerics.md);
two-bit experts are expanded some at a time, or inside their kernels.  Residual streams, pooling and scores
are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.device.cache import DeviceCache, LayerCache, StreamCache
from engine.device.weights import CompressorWeights, DeviceWeights, Layer
from engine.errors import EngineError
from engine.kernels.cuda.expand import Expander
from engine.kernels.layouts import Q8, TILE, Half
from engine.kernels.ref import rope, rounding
from engine.kernels.rows import KvLayout
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.kernels.triton.hyper import Site
from engine.kernels.triton.prefill import attention, compress, dense, experts, hyper, index, rows
from engine.kernels.triton.prefill.card import roomy
from engine.kernels.triton.project import RING
from engine.model.spec import SPARSE_RATIO

SCORES = 1 << 26  # index scores that exist at a time: 256 MiB
EXPANDED = 32  # experts that are expanded at a time: 1 GiB at the published shape
HEAD_ROWS = 8192  # rows of the output matrix expanded at a time


@dataclass(frozen=True, slots=True)
class Angles:
    """Cosine and sine [n, rope / 2] of some positions."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class Far:
    """Compressed rows of one ratio: where rows lie in a pool, those of this chunk last, and their angles."""

    at: Tensor  # int32 [rows]
    old: int
    angles: Angles  # of the new rows

    @property
    def count(self) -> int:
        """Rows when the chunk is done."""
        return len(self.at)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Everything about a chunk that is the same for all layers."""

    ids: Tensor  # int32 [T]
    first: int
    slot: int
    plain: Angles
    scaled: Angles
    ring: Tensor  # int32 [T]: a token's place in the ring, -1 for those that the ring will not hold
    before: Tensor  # int32 [window]: places of the raw rows before the chunk
    far: dict[int, Far]


class Prefill:
    """Prefill of one model into one cache, whose rows are packed; EngineError for others."""

    def __init__(self, weights: DeviceWeights, cache: DeviceCache) -> None:
        if cache.storage != "packed":
            raise EngineError(
                f"prefill was given a cache of {cache.storage} rows; it writes packed ones alone"
            )
        spec, device = weights.spec, weights.device
        yarn = rope.Yarn(
            spec.yarn_factor, spec.yarn_original_context, spec.yarn_beta_fast, spec.yarn_beta_slow
        )
        self._weights, self._cache, self._spec = weights, cache, spec
        self._plain = rope.frequencies(spec.rope_dim, spec.rope_base).to(device)
        self._scaled = rope.frequencies(spec.rope_dim, spec.compress_rope_base, yarn=yarn).to(device)
        self._signs = rounding.hadamard(torch.eye(spec.index_dim)).sign().to(device, torch.bfloat16)
        self._codebook = experts.codebook(device)
        self._layout = KvLayout(spec.nope_dim, spec.rope_dim)
        self._mixing = hyper.Mixing(spec.hc_count, spec.hc_iterations, spec.hc_eps, spec.rms_eps)
        size = max(HEAD_ROWS * spec.hidden, *(_largest(layer) for layer in weights.layers))
        self._scratch = torch.empty(size, dtype=torch.bfloat16, device=device)
        self._halves = self._scratch.view(torch.float16)
        self._expander = Expander(device) if roomy(device) else None
        self._room: Tensor | None = None
        if self._expander is not None:
            shape = (min(EXPANDED, spec.n_expert), 2 * spec.expert_width, spec.hidden)
            self._room = torch.empty(shape, dtype=torch.float16, device=device)

    def run(self, slot: int, tokens: Sequence[int] | Tensor, position: int) -> Tensor:
        """Append `tokens` at `position` to the sequence in `slot`; float32 logits [V] of the last one.

        Pages for all of them must be in the cache's table; `position` is the sequence's length so far.
        EngineError for no tokens, and for more than the table has pages for.
        """
        with torch.inference_mode():
            return self.head(self.streams(slot, tokens, position))

    def streams(self, slot: int, tokens: Sequence[int] | Tensor, position: int) -> Tensor:
        """The same, up to the final streams, float32 [T, n, C]."""
        chunk = self._chunk(slot, torch.as_tensor(tokens, dtype=torch.int32), position)
        weights, spec, device = self._weights, self._spec, self._weights.device
        streams = torch.empty(len(chunk.ids), spec.hc_count, spec.hidden, device=device)
        projection = hyper.empty_projection(len(chunk.ids), spec.hidden, device)
        hyper.embed(weights.embedding, chunk.ids, streams, weights.layers[0].attn_site.fn, projection)
        following = [layer.attn_site.fn for layer in weights.layers[1:]] + [None]
        for layer, cache, after in zip(weights.layers, self._cache.layers, following, strict=True):
            h, h16, gates = self._enter(streams, projection, layer.attn_site)
            y = hyper.Output(self._attention(layer, cache, chunk, h, h16))
            hyper.cross(streams, y, gates, layer.ffn_site.fn, projection)
            h, h16, gates = self._enter(streams, projection, layer.ffn_site)
            hyper.cross(streams, self._experts(layer, chunk, h, h16), gates, after, projection)
        return streams

    def _chunk(self, slot: int, ids: Tensor, first: int) -> Chunk:
        device, spec, room = self._weights.device, self._spec, self._cache.context
        if not len(ids) or not 0 <= first <= room - len(ids):
            raise EngineError(
                f"a chunk has {len(ids)} tokens at position {first}; allowed is at least one token, "
                f"and the last within the {room} that a sequence has pages for"
            )
        positions = torch.arange(first, first + len(ids), device=device)
        ring = torch.where(positions >= first + len(ids) - RING, positions % RING, -1).int()
        before = (torch.arange(first - spec.window, first, device=device) % RING).int()
        return Chunk(
            ids.to(device),
            first,
            slot,
            self._angles(positions, self._plain),
            self._angles(positions, self._scaled),
            ring,
            before,
            {ratio: self._far(slot, ratio, first, len(ids)) for ratio in set(spec.ratios) if ratio},
        )

    def _far(self, slot: int, ratio: int, first: int, tokens: int) -> Far:
        row = torch.arange((first + tokens) // ratio, device=self._weights.device)
        per_page, old = PAGE_TOKENS // ratio, first // ratio
        at = self._cache.table[slot][row // per_page] * per_page + row % per_page
        return Far(at.int(), old, self._angles(row[old:] * ratio, self._scaled))

    @staticmethod
    def _angles(positions: Tensor, frequencies: Tensor) -> Angles:
        return Angles(*rope.cos_sin(positions, frequencies))

    def _enter(
        self, streams: Tensor, projection: hyper.Projection, site: Site
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Input of a sub-layer in BF16 and float16 [T, C], and the site's gates."""
        tokens, n, hidden = streams.shape
        gates = torch.empty(tokens, (2 + n) * n, device=streams.device)
        hyper.weigh(projection, site, self._mixing, gates)
        h, h16 = _both(tokens, hidden, streams.device)
        hyper.enter(streams, gates, site.norm, self._spec.rms_eps, h, h16)
        return h, h16, gates

    def _product(self, x: Tensor, matrix: Q8) -> Tensor:
        return dense.product(x, dense.expand(matrix, self._scratch))

    def _wide(self, x: Tensor, matrix: Half) -> Tensor:
        return dense.wide_product(x, dense.unfold(matrix, self._halves))

    def _attention(self, layer: Layer, cache: LayerCache, chunk: Chunk, h: Tensor, h16: Tensor) -> Tensor:
        """Output [T, C] of normed rows; advances the layer's cache."""
        spec, tokens = self._spec, len(chunk.ids)
        low = self._product(h, layer.enter)
        qr, qr16 = _both(tokens, spec.q_rank, h.device)
        dense.norm(low[:, : spec.q_rank], layer.q_norm, spec.rms_eps, qr, qr16)
        seen = self._rows(layer, cache, chunk, low[:, spec.q_rank :])
        chosen = self._compress(layer, cache, chunk, seen, h16, qr16)
        angles = chunk.scaled if layer.ratio else chunk.plain
        heads = attention.Heads(angles.cos, angles.sin, layer.sinks, spec.rms_eps)
        q = self._product(qr, layer.q_b).view(tokens, spec.n_head, spec.head_dim)
        out = torch.empty_like(q)
        attention.attend(q, seen, heads, chosen, out)
        return self._product(self._grouped(out, layer.leave_a), layer.leave_b)

    def _grouped(self, out: Tensor, matrix: Q8) -> Tensor:
        """Each group's heads with its own matrix: [T, groups * rank]."""
        spec, tokens = self._spec, len(out)
        weight = dense.expand(matrix, self._scratch).view(spec.o_groups, spec.o_rank, -1)
        left = torch.empty(tokens, spec.o_groups, spec.o_rank, dtype=out.dtype, device=out.device)
        mixed = out.view(tokens, spec.o_groups, -1).transpose(0, 1)
        torch.bmm(mixed, weight.transpose(1, 2), out=left.transpose(0, 1))
        return left.view(tokens, -1)

    def _rows(self, layer: Layer, cache: LayerCache, chunk: Chunk, raw: Tensor) -> attention.Rows:
        """What the chunk looks at, with the raw rows filled in; writes them into the ring as well."""
        spec = self._spec
        far = chunk.far[layer.ratio].count if layer.ratio else 0
        data = torch.empty(
            far + spec.window + len(raw), spec.head_dim, dtype=torch.bfloat16, device=raw.device
        )
        ring = cache.ring[chunk.slot]
        rows.unpack(ring, chunk.before, self._layout, data[far : far + spec.window])
        angles = chunk.scaled if layer.ratio else chunk.plain
        how = rows.Finish(layer.kv_norm, spec.rms_eps, angles.cos, angles.sin)
        rows.finish(raw, how, self._layout, chunk.ring, ring, data[far + spec.window :])
        return attention.Rows(data, far, spec.window, chunk.first, layer.ratio)

    def _compress(
        self, layer: Layer, cache: LayerCache, chunk: Chunk, seen: attention.Rows, h16: Tensor, qr16: Tensor
    ) -> Tensor | None:
        """Compressed rows of the layer, old and new; the rows that each token may see if that is a choice."""
        if layer.main is None or cache.main is None or layer.collect is None:
            return None
        far, z = chunk.far[layer.ratio], self._wide(h16, layer.collect)
        channels = cache.main.keys.shape[-1]
        pooled, how = self._pool(z, layer.main, cache.main, chunk, far)
        rows.unpack(cache.main.pool, far.at[: far.old], self._layout, seen.data[: far.old])
        rows.finish(pooled, how, self._layout, far.at[far.old :], cache.main.pool, seen.data[far.old :])
        if layer.index is None or cache.index is None or layer.index_q is None:
            return None
        z = z[:, 2 * channels :]
        pooled, how = self._pool(z, layer.index, cache.index, chunk, far)
        index.finish(pooled, how, self._signs, far.at[far.old :], cache.index.pool)
        if far.count <= self._spec.index_topk:
            return None
        raw = self._wide(qr16, layer.index_q)
        return self._choose(raw, z[:, 2 * cache.index.keys.shape[-1] :], cache.index, chunk, far)

    def _pool(
        self, z: Tensor, weights: CompressorWeights, cache: StreamCache, chunk: Chunk, far: Far
    ) -> tuple[Tensor, rows.Finish]:
        """New rows as pooled, and how they are finished; the collected state moves on."""
        channels = cache.keys.shape[-1]
        tokens = compress.Tokens(z[:, :channels], z[:, channels : 2 * channels], weights.ape, chunk.first)
        state = compress.State(cache.keys[chunk.slot], cache.scores[chunk.slot])
        pooled = compress.pool(tokens, state)
        compress.keep(tokens, state)
        return pooled, rows.Finish(weights.norm, self._spec.rms_eps, far.angles.cos, far.angles.sin)

    def _choose(self, raw: Tensor, weights: Tensor, cache: StreamCache, chunk: Chunk, far: Far) -> Tensor:
        """The best compressed rows of each token, int32 [T, k]."""
        spec, tokens, device = self._spec, len(raw), raw.device
        raw = raw.view(tokens, spec.index_heads, spec.index_dim)
        q = torch.empty(raw.shape, dtype=torch.bfloat16, device=device)
        index.queries(raw, chunk.scaled.cos, chunk.scaled.sin, self._signs, q)
        keys = torch.empty(far.count, spec.index_dim, dtype=torch.bfloat16, device=device)
        index.unpack(cache.pool, far.at, keys)
        chosen = torch.empty(tokens, spec.index_topk, dtype=torch.int32, device=device)
        step = max(1, min(tokens, SCORES // far.count))
        score = index.empty_scores(step, far.count, device)
        for start in range(0, tokens, step):
            part = slice(start, min(start + step, tokens))
            causal = index.Causal(chunk.first + start, SPARSE_RATIO)
            index.scores(q[part], keys, weights[part], causal, score)
            index.select(score, causal, spec.index_topk, chosen[part])
        return chosen

    def _experts(self, layer: Layer, chunk: Chunk, h: Tensor, h16: Tensor) -> hyper.Output:
        """Shared expert's rows, and the routed experts' rows by slot."""
        spec, tokens = self._spec, len(h)
        logits = self._wide(h16, layer.router)
        choice = experts.route(
            logits, spec.n_expert_used, spec.expert_scale, bias=layer.bias, table=layer.table, ids=chunk.ids
        )
        groups = experts.group(choice, spec.n_expert)
        inner = self._units(layer, h16, choice, groups)
        slots = experts.leave(inner, groups, layer.down).view(tokens, spec.n_expert_used, -1)
        shared = torch.empty(tokens, spec.expert_width, dtype=torch.bfloat16, device=h.device)
        dense.glu(self._product(h, layer.shared_in), layer.limit, shared)
        return hyper.Output(self._product(shared, layer.shared_out), slots)

    def _units(self, layer: Layer, h16: Tensor, choice: experts.Choice, groups: experts.Groups) -> Tensor:
        """Gated units of all slots: expanded some experts at a time where memory is fast, else in the
        product."""
        if self._expander is None or self._room is None:
            return experts.enter(h16, choice, groups, layer.up, self._codebook, layer.limit)
        out = torch.empty(len(groups.order), self._spec.expert_width, dtype=torch.float16, device=h16.device)
        for first in range(0, self._spec.n_expert, EXPANDED):
            room = self._room[: self._spec.n_expert - first]
            self._expander.expand(layer.up, first, room)
            experts.enter_expanded(h16, choice, groups, room, first, layer.limit, out)
        return out

    def head(self, streams: Tensor) -> Tensor:
        """Logits [V] of the last token's streams."""
        spec, site, output = self._spec, self._weights.head_site, self._weights.output
        last = streams[-1]
        flat = last.flatten()
        root = torch.rsqrt(flat.square().mean() + spec.rms_eps)
        share = torch.sigmoid((site.fn.float() @ flat) * root * site.scale + site.base) + spec.hc_eps
        x = share @ last
        x = (x * torch.rsqrt(x.square().mean() + spec.rms_eps) * site.norm).to(torch.bfloat16).unsqueeze(0)
        parts = []
        for start in range(0, spec.vocab // TILE, HEAD_ROWS // TILE):
            tiles = slice(start, start + HEAD_ROWS // TILE)
            part = Q8(output.codes[tiles], output.scales[tiles])
            parts.append(dense.wide_product(x, dense.expand(part, self._scratch))[0])
        return torch.cat(parts)


def _both(tokens: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for rows in BF16 and in float16."""
    bf16 = torch.empty(tokens, width, dtype=torch.bfloat16, device=device)
    return bf16, torch.empty(tokens, width, dtype=torch.float16, device=device)


def _largest(layer: Layer) -> int:
    """Values of the largest dense matrix of a layer."""
    packed = (layer.enter, layer.q_b, layer.leave_a, layer.leave_b, layer.shared_in, layer.shared_out)
    halves = (layer.collect, layer.index_q, layer.router)
    return max(
        *(matrix.codes.numel() for matrix in packed),
        *(half.values.numel() for half in halves if half is not None),
    )
