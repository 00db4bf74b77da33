"""A model's weights on a device, packed as the kernels read them.

Knows the recipe of the 2-bit files (docs/model.md, 11.2): Q8_0 dense matrices, F16 small ones, IQ2_XXS and
Q2_K experts.  Where the bytes come from, a file or a generator, is the source's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.quants import QuantType
from engine.kernels import layouts
from engine.kernels.layouts import IQ2, Q2, Q8, Half
from engine.kernels.triton.hyper import Site
from engine.model.spec import SPARSE_RATIO, ModelSpec

EXPERTS_AT_ONCE = 32  # repacked at a time


class RawSource(Protocol):
    """Where raw tensors come from."""

    def raw(self, name: str) -> Tensor:
        """Bytes of a tensor on the device, uint8 [..., rows, bytes a row]; plain types in their own type."""
        ...

    def type(self, name: str) -> QuantType:
        """Its block format."""
        ...


@dataclass(frozen=True, slots=True)
class CompressorWeights:
    """Position bias [ratio, channels] and norm weight of one compressed stream."""

    ape: Tensor
    norm: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; matrices that share an input are one, stacked by output row."""

    ratio: int
    limit: float
    attn_site: Site
    ffn_site: Site
    enter: Q8  # q_a | kv
    q_norm: Tensor
    kv_norm: Tensor
    q_b: Q8
    sinks: Tensor
    leave_a: Q8  # groups stacked
    leave_b: Q8
    collect: Half | None  # keys | scores, then of the indexer keys | scores | head weights
    main: CompressorWeights | None
    index: CompressorWeights | None
    index_q: Half | None
    router: Half
    bias: Tensor | None  # of score-routed layers
    table: Tensor | None  # int32 [V, K] of hash-routed layers
    shared_in: Q8  # gate | up
    shared_out: Q8
    up: IQ2  # [E, 2 F, ..], gate rows first
    down: Q2


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """All weights of a model on one device."""

    spec: ModelSpec
    embedding: Tensor  # float16 [V, C]
    layers: tuple[Layer, ...]
    head_site: Site
    output: Q8

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.embedding.device

    @classmethod
    def load(cls, spec: ModelSpec, source: RawSource) -> DeviceWeights:
        """Take every tensor from the source once; ModelFileError names one whose format has no kernel."""
        layers = tuple(_layer(spec, _Reader(source), number) for number in range(spec.n_layer))
        read = _Reader(source)
        head = Site(
            read.half("output_hc_fn.weight"),
            read.plain("output_hc_scale.weight"),
            read.plain("output_hc_base.weight"),
            read.plain("output_norm.weight"),
        )
        return cls(spec, read.half("token_embd.weight"), layers, head, read.q8("output.weight"))


class _Reader:
    """Typed access to a source."""

    def __init__(self, source: RawSource) -> None:
        self._source = source

    def plain(self, name: str) -> Tensor:
        """A small float32 tensor."""
        return self._source.raw(name).float()

    def half(self, *names: str) -> Tensor:
        """F16 matrices stacked by output row."""
        parts = [self._taken(name, QuantType.F16) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def tiled(self, *names: str) -> Half:
        """The same in the kernels' order."""
        return layouts.split_half(self.half(*names))

    def q8(self, *names: str) -> Q8:
        """Q8_0 matrices stacked by output row."""
        parts = [layouts.split_q8(self._taken(name, QuantType.Q8_0)) for name in names]
        return Q8(torch.cat([part.codes for part in parts]), torch.cat([part.scales for part in parts]))

    def iq2(self, *names: str) -> IQ2:
        """Stacks of IQ2_XXS experts, joined by output row."""
        raws = (self._taken(name, QuantType.IQ2_XXS) for name in names)
        return IQ2(*_stacked(lambda raw: _planes(layouts.split_iq2(raw)), raws, len(names)))

    def q2(self, name: str) -> Q2:
        """A stack of Q2_K experts."""
        raws = iter((self._taken(name, QuantType.Q2_K),))
        return Q2(*_stacked(lambda raw: _planes(layouts.split_q2(raw)), raws, 1))

    def table(self, name: str) -> Tensor:
        """A table of expert ids, int32."""
        return self._taken(name, QuantType.I32)

    def _taken(self, name: str, kind: QuantType) -> Tensor:
        found = self._source.type(name)
        if found is not kind:
            raise ModelFileError(
                f"tensor {name!r} has type {found.name}, the device kernels read {kind.name} there; "
                "use a file of the 2-bit recipe or run on the CPU"
            )
        return self._source.raw(name)


def _planes(packed: IQ2 | Q2) -> list[Tensor]:
    return [getattr(packed, field.name) for field in fields(packed)]


def _stacked(
    split: Callable[[Tensor], Sequence[Tensor]], raws: Iterable[Tensor], count: int
) -> Sequence[Tensor]:
    """Planes of `count` stacks of experts joined by output row, split a few experts at a time: what the split
    makes on its way is several times its result, and the device may have little to spare."""
    joined: list[Tensor] = []
    for number, raw in enumerate(raws):
        for start in range(0, len(raw), EXPERTS_AT_ONCE):
            planes = split(raw[start : start + EXPERTS_AT_ONCE])
            tiles = planes[0].shape[1]
            if not joined:
                joined = [plane.new_empty(len(raw), count * tiles, *plane.shape[2:]) for plane in planes]
            for whole, plane in zip(joined, planes, strict=True):
                whole[start : start + len(plane), number * tiles : (number + 1) * tiles] = plane
    return joined


def _layer(spec: ModelSpec, read: _Reader, number: int) -> Layer:
    name = f"blk.{number}.".__add__
    ratio, hashed = spec.ratios[number], number < spec.n_hash_layer
    sparse = ratio == SPARSE_RATIO
    collect = [name("attn_compressor_kv.weight"), name("attn_compressor_gate.weight")] if ratio else []
    if sparse:
        collect += [name(f"indexer_compressor_{part}.weight") for part in ("kv", "gate")]
        collect += [name("indexer.proj.weight")]
    return Layer(
        ratio=ratio,
        limit=spec.swiglu_limits[number],
        attn_site=_site(read, number, "attn"),
        ffn_site=_site(read, number, "ffn"),
        enter=read.q8(name("attn_q_a.weight"), name("attn_kv.weight")),
        q_norm=read.plain(name("attn_q_a_norm.weight")),
        kv_norm=read.plain(name("attn_kv_a_norm.weight")),
        q_b=read.q8(name("attn_q_b.weight")),
        sinks=read.plain(name("attn_sinks.weight")),
        leave_a=read.q8(name("attn_output_a.weight")),
        leave_b=read.q8(name("attn_output_b.weight")),
        collect=read.tiled(*collect) if collect else None,
        main=_compressor(read, name("attn_compressor")) if ratio else None,
        index=_compressor(read, name("indexer_compressor")) if sparse else None,
        index_q=read.tiled(name("indexer.attn_q_b.weight")) if sparse else None,
        router=read.tiled(name("ffn_gate_inp.weight")),
        bias=None if hashed else read.plain(name("exp_probs_b.bias")),
        table=read.table(name("ffn_gate_tid2eid.weight")) if hashed else None,
        shared_in=read.q8(name("ffn_gate_shexp.weight"), name("ffn_up_shexp.weight")),
        shared_out=read.q8(name("ffn_down_shexp.weight")),
        up=read.iq2(name("ffn_gate_exps.weight"), name("ffn_up_exps.weight")),
        down=read.q2(name("ffn_down_exps.weight")),
    )


def _site(read: _Reader, number: int, part: str) -> Site:
    prefix = f"blk.{number}.hc_{part}_"
    return Site(
        read.half(prefix + "fn.weight"),
        read.plain(prefix + "scale.weight"),
        read.plain(prefix + "base.weight"),
        read.plain(f"blk.{number}.{part}_norm.weight"),
    )


def _compressor(read: _Reader, prefix: str) -> CompressorWeights:
    return CompressorWeights(read.plain(prefix + "_ape.weight"), read.plain(prefix + "_norm.weight"))
