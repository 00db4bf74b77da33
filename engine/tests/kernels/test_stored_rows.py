"""Cached rows in Triton kernels: packed as the twins pack them, and wide ones change no bit of any result."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.device.cache import DeviceCache, StreamCache
from engine.kernels.ref.packed import Planes
from engine.kernels.ref.rounding import hadamard
from engine.kernels.ref.rows import pack_index, pack_kv, unpack_index, unpack_kv
from engine.kernels.rows import IndexLayout, KvLayout
from engine.kernels.triton import attention, heads, index, project
from engine.kernels.triton.compress import PAGE_TOKENS, compress
from engine.kernels.triton.rows import load_kv, store_index, store_kv
from engine.model.published import SPECS
from engine.model.spec import ModelSpec
from engine.tests.device.small import SMALL
from engine.tests.kernels.prefill.cases import DEVICE, Random, differing

KV, INDEX = KvLayout(448, 64), IndexLayout(128)


@triton.jit
def _store(values, to, stride, nope: tl.constexpr, width: tl.constexpr, indexed: tl.constexpr, spread):
    row = tl.program_id(0)
    x = tl.load(values + row * width + tl.arange(0, width))
    if indexed:
        store_index(x, spread, to + row * stride, width)
    else:
        store_kv(x, to + row * stride, nope, width)


@triton.jit
def _load(stored, stride, out, nope: tl.constexpr, width: tl.constexpr, count: tl.constexpr):
    row = tl.arange(0, count)
    values = load_kv(stored + row * stride, row < count - 1, nope, width, count)
    tl.store(out + row[:, None] * width + tl.arange(0, width)[None, :], values)


def room(rows: int, layout: KvLayout | IndexLayout) -> tuple[Tensor, Tensor]:
    packed = torch.full((rows, layout.nbytes), 7, dtype=torch.uint8, device=DEVICE)
    return packed, torch.full((rows, layout.width), torch.nan, device=DEVICE)


def bits(values: Tensor) -> Tensor:
    return values if values.dtype == torch.uint8 else values.float().view(torch.int32)


def values_of(rows: int, width: int) -> Tensor:
    random = Random(rows)
    x = random.normal(rows, width) * 10.0 ** (2 * random.normal(rows, 1))
    x[0] = 0.0
    x[1, ::2] = -0.0
    return x


def check_attention_rows(rows: int) -> None:
    x = values_of(rows, KV.width)
    wanted = pack_kv(x.cpu(), KV).to(DEVICE)
    for stored in room(rows, KV):
        _store[(rows,)](x, stored, stored.shape[1], KV.nope, KV.width, False, 1.0)
        out = torch.empty(rows, KV.width, dtype=torch.bfloat16, device=DEVICE)
        _load[(1,)](stored, stored.shape[1], out, KV.nope, KV.width, rows)

        if stored.dtype == torch.uint8:
            used = [*range(KV.scale_at + KV.scales), *range(KV.tail_at, KV.tail_at + 2 * KV.rope)]
            assert torch.equal(stored[:, used], wanted[:, used])
        else:
            assert torch.equal(bits(stored), bits(unpack_kv(wanted, KV)))
        assert torch.equal(bits(out[:-1]), bits(unpack_kv(wanted, KV)[:-1]))
        assert not out[-1].any()  # the last was not live


def test_attention_rows_are_stored_and_loaded_as_the_twin_says() -> None:
    check_attention_rows(16)


@pytest.mark.device
def test_attention_rows_on_a_device() -> None:
    check_attention_rows(16)


def test_index_rows_are_stored_as_the_twin_says() -> None:
    x = Random(3).normal(6, INDEX.width)
    wanted = unpack_index(pack_index(hadamard(x.cpu())), INDEX).to(DEVICE)
    packed, wide = room(6, INDEX)
    for stored in (packed, wide):
        _store[(6,)](x, stored, stored.shape[1], 0, INDEX.width, True, INDEX.width**-0.5)

    assert torch.equal(bits(unpack_index(packed, INDEX)), bits(wide))
    assert differing(wide, wanted) < 2e-3  # float32 sums in another order


@dataclass(frozen=True, slots=True)
class Layer:
    """One compressed layer in a step of several rows of one sequence: its input, and where it stands."""

    spec: ModelSpec
    ratio: int
    length: int
    rows: int

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Positions and slots."""
        positions = self.length + torch.arange(self.rows, dtype=torch.int32, device=DEVICE)
        return positions, torch.ones_like(positions)

    def cache(self) -> DeviceCache:
        """Random packed rows everywhere, pages in disorder."""
        spec = replace(self.spec, n_layer=1, ratios=(self.ratio,))
        most = -(-self.length // PAGE_TOKENS) + 1
        cache = DeviceCache.empty(spec, DEVICE, slots=2, pages=2 * most, most=most)
        kv, random = KvLayout(spec.nope_dim, spec.rope_dim), Random(7)
        (layer,) = cache.layers
        layer.ring.copy_(pack_kv(random.normal(*layer.ring.shape[:2], kv.width), kv))
        for stream in (layer.main, layer.index):
            if stream is not None:
                stream.keys.copy_(random.normal(*stream.keys.shape))
                stream.scores.copy_(random.normal(*stream.scores.shape))
        if layer.main is not None:
            layer.main.pool.copy_(pack_kv(random.normal(len(layer.main.pool), kv.width), kv))
        if layer.index is not None:
            layer.index.pool.copy_(pack_index(random.normal(len(layer.index.pool), spec.index_dim)))
        cache.table.copy_(random.order(2 * most).view(2, most))
        return cache

    def write(self, cache: DeviceCache) -> None:
        """The rows of the step's own tokens, and of the windows that close."""
        spec, random, (layer,) = self.spec, Random(8), cache.layers
        angles = random.normal(self.rows, 1, spec.rope_dim // 2, 2)
        norms = tuple(1 + random.normal(width, spread=0.2) for width in (spec.q_rank, spec.head_dim))
        planes = Planes.empty((self.rows, spec.q_rank), DEVICE, halves=True)
        z = random.normal(self.rows, spec.q_rank + spec.head_dim)
        project.finish(
            z, (norms[0], norms[1]), angles, self.places, layer.ring, planes, nope=spec.nope_dim, rms_eps=1e-6
        )
        for stream, width in ((layer.main, spec.head_dim), (layer.index, spec.index_dim)):
            if stream is not None:
                self._compress(cache, stream, width, angles, random)

    def _compress(
        self, cache: DeviceCache, stream: StreamCache, width: int, angles: Tensor, random: Random
    ) -> None:
        channels = stream.keys.shape[2]
        weights = (random.normal(self.ratio, channels).half(), 1 + random.normal(width, spread=0.2))
        compress(
            random.normal(self.rows, 2 * channels),
            weights,
            angles,
            self.places,
            (stream.keys, stream.scores),
            stream.pool,
            cache.table,
            ratio=self.ratio,
            nope=width - self.spec.rope_dim,
            index=width == self.spec.index_dim,
            rms_eps=1e-6,
        )

    def read(self, cache: DeviceCache) -> list[Tensor]:
        """What attention and the indexer make of the rows."""
        spec, random, (layer,) = self.spec, Random(9), cache.layers
        queries = heads.empty(
            self.rows, (spec.n_head, spec.head_dim), (spec.index_heads, spec.index_dim), DEVICE
        )
        queries.heads.copy_(random.normal(*queries.heads.shape) * 0.05)
        queries.codes.copy_(random.whole(-12, 13, *queries.codes.shape))
        queries.scales.copy_(2.0 ** random.whole(-4, 3, *queries.scales.shape))
        closed, chosen = self.length // self.ratio, None
        scores = torch.zeros(self.rows, closed + self.rows, device=DEVICE)
        if layer.index is not None:
            index.scores(
                queries,
                random.normal(self.rows, spec.index_heads),
                self.places,
                layer.index.pool,
                cache.table,
                scores,
                ratio=self.ratio,
                page_tokens=PAGE_TOKENS,
                topk=spec.index_topk,
            )
            chosen = torch.stack([random.order(closed)[: spec.index_topk] for _ in range(self.rows)]).int()
        assert layer.main is not None
        partial = attention.Partial.empty(self.rows, spec.n_head, spec.head_dim, DEVICE)
        attention.attend(
            queries.heads,
            self.places,
            layer.ring,
            attention.Far(layer.main.pool, self.ratio, chosen),
            cache.table,
            partial,
            nope=spec.nope_dim,
            window=spec.window,
            page_tokens=PAGE_TOKENS,
        )
        found = [partial.sums, partial.peaks]
        return found if layer.index is None else [scores, *found]


def check_storages(layer: Layer) -> None:
    packed = layer.cache()
    spec = replace(layer.spec, n_layer=1, ratios=(layer.ratio,))
    wide = packed.widened(spec)
    found = []
    for cache in (packed, wide):
        layer.write(cache)
        found.append(layer.read(cache))
    rows = [
        (at.ring, *(stream.pool for stream in (at.main, at.index) if stream is not None))
        for cache in (packed.widened(spec), wide)
        for at in cache.layers
    ]

    assert wide.storage == "wide"
    for one, other in zip(*found, strict=True):
        assert one.any()
        assert torch.equal(bits(one), bits(other))
    for one, other in zip(*rows, strict=True):
        assert torch.equal(bits(one), bits(other))


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(Layer(SMALL, 4, 299, 2), id="sparse"),
        pytest.param(Layer(replace(SMALL, index_topk=0), 128, 255, 1), id="heavy"),
    ],
)
def test_wide_rows_change_no_bit(layer: Layer) -> None:
    check_storages(layer)


@pytest.mark.device
@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(Layer(SPECS["v4-flash"], 4, 9997, 5), id="sparse"),
        pytest.param(Layer(SPECS["v4-flash"], 128, 9855, 2), id="heavy"),
    ],
)
def test_wide_rows_change_no_bit_on_a_device(layer: Layer) -> None:
    check_storages(layer)
