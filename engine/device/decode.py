"""One decode or verify step of 1 to 32 rows through all layers, captured once and replayed at every depth.

Positions, tokens and sequences lie in device memory; nothing waits for the host inside a step.  The phase,
not the number of rows, picks the kernels, and every sum has an order fixed by shapes and positions, so a
row's bits do not depend on its company.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from engine.device.cache import DeviceCache, LayerCache, StreamCache
from engine.device.weights import CompressorWeights, DeviceWeights, Layer
from engine.errors import EngineError, ModelFileError
from engine.kernels.layouts import IQ2, Q2, Q8, SUPER, TILE, Half
from engine.kernels.ref import rope
from engine.kernels.ref.packed import Choice, Planes, Routes
from engine.kernels.triton import attention, heads, hyper, index, nucleus, planes, project, sample
from engine.kernels.triton.compress import PAGE_TOKENS, compress
from engine.kernels.triton.route import MOST_USED, route
from engine.model.spec import SPARSE_RATIO, ModelSpec

MOST_ROWS = 32  # rows of a step: what the packed products have columns for


def check_shape(spec: ModelSpec) -> None:
    """ModelFileError for a shape that the kernels of a step do not take, with everything that is wrong."""
    powers = {name: getattr(spec, name) for name in ("hidden", "head_dim", "q_rank", "n_expert", "index_dim")}
    blocks = {
        "hidden": spec.hidden,
        "head_dim": spec.head_dim,
        "q_rank": spec.q_rank,
        "expert_width": spec.expert_width,
        "a group's heads": spec.n_head * spec.head_dim // spec.o_groups,
        "o_groups * o_rank": spec.o_groups * spec.o_rank,
    }
    wrong = [f"{name} is {size}, no power of two" for name, size in powers.items() if size & (size - 1)]
    wrong += [f"{name} is {size}, no multiple of {SUPER}" for name, size in blocks.items() if size % SUPER]
    if spec.hc_count != hyper.STREAMS:
        wrong.append(f"hc_count is {spec.hc_count}, not {hyper.STREAMS}")
    if spec.n_head % attention.HEADS:
        wrong.append(f"n_head is {spec.n_head}, no multiple of {attention.HEADS}")
    if spec.n_expert_used > MOST_USED:
        wrong.append(f"n_expert_used is {spec.n_expert_used}, more than {MOST_USED}")
    if wrong:
        raise ModelFileError(
            f"the device kernels do not take this model: {'; '.join(wrong)}; run it on the CPU"
        )


class Products(Protocol):
    """Products of packed weights: `engine.kernels.cuda.packed`, or its twin in
    `engine.kernels.ref.packed`."""

    def choose(self, positions: Tensor, ratio: int, out: Choice) -> None:
        """The indexer's choice from its scores."""

    def dense(
        self, x: Planes, q8: Q8 | None, q_out: Tensor | None, f16: Half | None, h_out: Tensor | None
    ) -> None:
        """A Q8_0 and an F16 matrix over the same rows."""

    def grouped(self, x: Planes, q8: Q8, out: Tensor) -> None:
        """Each group of output rows with its own input rows."""

    def routed_up(self, x: Planes, up: IQ2, routes: Routes, limit: float, out: Tensor) -> None:
        """Gated units of the routed experts."""

    def routed_down(self, x: Planes, sums: Tensor, down: Q2, shared: Q8, routes: Routes, out: Tensor) -> None:
        """Down projections of routed and shared experts."""


class Buffers:
    """Everything a step of `rows` rows writes between its launches."""

    def __init__(self, weights: DeviceWeights, rows: int, context: int) -> None:
        spec, device = weights.spec, weights.device
        width, pairs = spec.n_head * spec.head_dim, rows * spec.n_expert_used

        def floats(*shape: int) -> Tensor:
            return torch.zeros(*shape, device=device)

        self.streams = floats(rows, spec.hc_count, spec.hidden)
        self.hyper = hyper.Work.empty(rows, spec.hidden, device)
        self.h = Planes.empty((rows, spec.hidden), device, halves=True)
        self.low = floats(rows, spec.q_rank + spec.head_dim)
        self.collected = floats(
            rows,
            max(
                (len(layer.collect.values) * TILE for layer in weights.layers if layer.collect is not None),
                default=1,
            ),
        )
        self.query = Planes.empty((rows, spec.q_rank), device, halves=True)
        self.q = floats(rows, width)
        self.index_q = floats(rows, spec.index_heads * spec.index_dim)
        self.queries = heads.empty(
            rows, (spec.n_head, spec.head_dim), (spec.index_heads, spec.index_dim), device
        )
        self.choice = Choice.empty(rows, context // SPARSE_RATIO, spec.index_topk, device)
        self.partial = attention.Partial.empty(rows, spec.n_head, spec.head_dim, device)
        self.mixed = Planes.empty((spec.o_groups, rows, width // spec.o_groups), device)
        self.left = floats(rows, spec.o_groups * spec.o_rank)
        self.leaving = Planes.empty((rows, spec.o_groups * spec.o_rank), device)
        self.attended = floats(rows, spec.hidden)
        self.logits = floats(rows, spec.n_expert)
        self.gates = floats(rows, 2 * spec.expert_width)
        self.routes = Routes.empty(rows, spec.n_expert_used, device)
        self.inner = floats(pairs, spec.expert_width)
        self.units = Planes.empty((pairs + rows, spec.expert_width), device)
        self.sums = torch.zeros(pairs, spec.expert_width // SUPER, 2, 16, dtype=torch.float16, device=device)
        self.parts = floats(pairs + rows, spec.hidden)
        self.output = floats(rows, spec.vocab)
        self.sample = nucleus.Work.empty(rows, spec.vocab, device)


class DecodeStep:
    """A step of a fixed number of rows; fill `tokens`, `positions` and `slots` int32 [M], then `run`.

    Rows of one sequence follow each other in the order of their positions.  `rules` say how each row's next
    token is drawn, at first the likeliest; they are filled in place, so a captured step follows them.
    EngineError for a number of rows that no step has, ModelFileError for a shape that the kernels do not
    take.
    """

    def __init__(self, weights: DeviceWeights, cache: DeviceCache, products: Products, rows: int) -> None:
        if not 1 <= rows <= MOST_ROWS:
            raise EngineError(f"a step of {rows} rows was asked for; allowed are 1 to {MOST_ROWS}")
        check_shape(weights.spec)
        self._weights, self._cache, self._products = weights, cache, products
        self._work = Buffers(weights, rows, cache.context)
        self.tokens, self.positions, self.slots = (
            torch.zeros(rows, dtype=torch.int32, device=weights.device) for _ in range(3)
        )
        self.rules = nucleus.Rules.greedy(rows, weights.spec.vocab, weights.device)
        spec = weights.spec
        yarn = rope.Yarn(
            spec.yarn_factor, spec.yarn_original_context, spec.yarn_beta_fast, spec.yarn_beta_slow
        )
        self._plain = rope.frequencies(spec.rope_dim, spec.rope_base).to(weights.device)
        self._scaled = rope.frequencies(spec.rope_dim, spec.compress_rope_base, yarn=yarn).to(weights.device)
        self._heavy = max([ratio for ratio in spec.ratios if ratio], default=1)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._side = torch.cuda.Stream() if weights.device.type == "cuda" else None
        self._apart = False

    @property
    def experts_read(self) -> int:
        """Distinct routed experts that the last layer of the last step read."""
        return len(self._work.routes.experts.unique())

    def run(self) -> Tensor:
        """Advance every row by its token; logits [M, V].  The caller moves `tokens` and `positions` on."""
        if self._graph is None:
            return self._launch()
        self._graph.replay()
        return self._work.output

    def draw(self) -> Tensor:
        """The next token of every row int32 [M], from the logits of the last `run`; -1 where none is finite.

        A captured step has drawn already, and these are its tokens.
        """
        if self._graph is None:
            sample.sample(self._work.output, self.rules, self.positions, self._work.sample)
        return self._work.sample.drawn

    def capture(self) -> None:
        """Record the whole step, draw and advance included, as one graph.

        After that `run` feeds itself: each replay continues where the last one ended.
        """
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._advance()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._advance()
        self._graph = graph

    def _advance(self) -> None:
        drawn = sample.sample(self._launch(), self.rules, self.positions, self._work.sample)
        torch.clamp(drawn, min=0, out=self.tokens)
        self.positions.add_(1)

    def _launch(self) -> Tensor:
        work, weights, spec = self._work, self._weights, self._weights.spec
        angles = self._angles()
        parts: Tensor | None = None
        used = 0
        for layer, cache in zip(weights.layers, self._cache.layers, strict=True):
            self._cross(layer.attn_site, parts, used)
            self._enter(layer.attn_site)
            self._attention(layer, cache, angles)
            self._cross(layer.ffn_site, work.attended, 0)
            self._enter(layer.ffn_site)
            self._experts(layer)
            parts, used = work.parts, spec.n_expert_used
        self._cross(weights.head_site, parts, used)
        self._enter(weights.head_site, head=True)
        self._products.dense(work.h, weights.output, work.output, None, None)
        return work.output

    def _angles(self) -> Tensor:
        """Cosines and sines [M, 4, rope / 2, 2] of: plain, scaled, and scaled of a closing window's first
        token."""
        at = self.positions.float()
        turns = [at.unsqueeze(1) * self._plain]
        turns += [(at - back).unsqueeze(1) * self._scaled for back in (0, SPARSE_RATIO - 1, self._heavy - 1)]
        turn = torch.stack(turns, 1)
        return torch.stack((turn.cos(), turn.sin()), -1)

    def _cross(self, site: hyper.Site, parts: Tensor | None, used: int) -> None:
        """Leave the sub-layer that wrote `parts`, or begin with the tokens' embeddings where there was
        none."""
        self._together()
        embedding = (self._weights.embedding, self.tokens) if parts is None else None
        hyper.cross(self._work.streams, site, self._work.hyper, parts=parts, used=used, embedding=embedding)

    def _enter(self, site: hyper.Site, *, head: bool = False) -> None:
        spec, work = self._weights.spec, self._work
        eps = {"hc_eps": spec.hc_eps, "rms_eps": spec.rms_eps}
        if not head:
            with self._beside():
                hyper.balance(site, work.hyper, hidden=spec.hidden, iterations=spec.hc_iterations, **eps)
        hyper.enter(work.streams, site, work.hyper, work.h, **eps)

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Launches inside run beside those that follow, until `_together`."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream())
        self._apart = True
        with torch.cuda.stream(self._side):
            yield

    def _together(self) -> None:
        if self._side is not None and self._apart:
            torch.cuda.current_stream().wait_stream(self._side)
            self._apart = False

    def _attention(self, layer: Layer, cache: LayerCache, angles: Tensor) -> None:
        work, spec, places = self._work, self._weights.spec, (self.positions, self.slots)
        kind = angles[:, 1:] if layer.ratio else angles
        collected = (
            work.collected[:, : len(layer.collect.values) * TILE] if layer.collect is not None else None
        )
        self._products.dense(work.h, layer.enter, work.low, layer.collect, collected)
        norms = (layer.q_norm, layer.kv_norm)
        project.finish(
            work.low, norms, kind, places, cache.ring, work.query, nope=spec.nope_dim, rms_eps=spec.rms_eps
        )
        with self._beside():
            self._compress(layer, cache, angles, collected)
        index_q = work.index_q if layer.index_q is not None else None
        self._products.dense(work.query, layer.q_b, work.q, layer.index_q, index_q)
        heads.queries(work.q, index_q, kind, work.queries, rope=spec.rope_dim, rms_eps=spec.rms_eps)
        self._together()
        far = self._choose(layer, cache, collected)
        attention.attend(
            work.queries.heads,
            places,
            cache.ring,
            far,
            self._cache.table,
            work.partial,
            nope=spec.nope_dim,
            window=spec.window,
            page_tokens=PAGE_TOKENS,
        )
        attention.combine(
            work.partial,
            self.positions,
            far,
            layer.sinks,
            kind,
            work.mixed,
            window=spec.window,
            rope=spec.rope_dim,
            groups=spec.o_groups,
        )
        self._products.grouped(work.mixed, layer.leave_a, work.left)
        planes.planes(work.left, work.leaving)
        self._products.dense(work.leaving, layer.leave_b, work.attended, None, None)

    def _compress(self, layer: Layer, cache: LayerCache, angles: Tensor, z: Tensor | None) -> None:
        """Collect the rows' tokens and write the windows that close."""
        if cache.main is None or layer.main is None or z is None:
            return
        first = angles[:, 2:] if cache.index is not None else angles[:, 3:]
        self._collect(z, layer.main, first, cache.main, layer.ratio, index=False)
        if cache.index is not None and layer.index is not None:
            rest = z[:, 2 * cache.main.keys.shape[2] :]
            self._collect(rest, layer.index, first, cache.index, layer.ratio, index=True)

    def _collect(
        self,
        z: Tensor,
        weights: CompressorWeights,
        first: Tensor,
        cache: StreamCache,
        ratio: int,
        *,
        index: bool,
    ) -> None:
        spec = self._weights.spec
        compress(
            z,
            (weights.ape, weights.norm),
            first,
            (self.positions, self.slots),
            (cache.keys, cache.scores),
            cache.pool,
            self._cache.table,
            ratio=ratio,
            nope=spec.index_dim - spec.rope_dim if index else spec.nope_dim,
            index=index,
            rms_eps=spec.rms_eps,
        )

    def _choose(self, layer: Layer, cache: LayerCache, z: Tensor | None) -> attention.Far | None:
        """What attention may see beyond the window: all compressed rows, or the indexer's choice."""
        if cache.main is None or z is None:
            return None
        if cache.index is None:
            return attention.Far(cache.main.pool, layer.ratio, None)
        work, places = self._work, (self.positions, self.slots)
        head_weights = z[:, 2 * (cache.main.keys.shape[2] + cache.index.keys.shape[2]) :]
        index.scores(
            work.queries,
            head_weights,
            places,
            cache.index.pool,
            self._cache.table,
            work.choice.scores,
            ratio=layer.ratio,
            page_tokens=PAGE_TOKENS,
            topk=self._weights.spec.index_topk,
        )
        self._products.choose(self.positions, layer.ratio, work.choice)
        return attention.Far(cache.main.pool, layer.ratio, work.choice.chosen)

    def _experts(self, layer: Layer) -> None:
        work, spec = self._work, self._weights.spec
        self._products.dense(work.h, layer.shared_in, work.gates, layer.router, work.logits)
        hashed = None if layer.table is None else (layer.table, self.tokens)
        route(
            work.logits,
            layer.bias,
            hashed,
            work.gates,
            work.routes,
            work.units,
            scale=spec.expert_scale,
            limit=layer.limit,
        )
        self._products.routed_up(work.h, layer.up, work.routes, layer.limit, work.inner)
        planes.planes(work.inner, work.units, work.sums)
        self._products.routed_down(
            work.units, work.sums, layer.down, layer.shared_out, work.routes, work.parts
        )
