"""The few operations of the graph that an experiment may replace: matmuls, rounded stores, angles.

The default is the engine's definition.  A test that imitates another engine's roundings derives from `Ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor

from engine.gguf.quants import QuantType
from engine.kernels.ref import rope, rounding
from engine.kernels.ref.attention import ROW_TILE
from engine.kernels.ref.linear import grouped, linear, times
from engine.kernels.ref.rounding import Numerics
from engine.kernels.ref.rows import RowCodec
from engine.kernels.rows import IndexLayout, KvLayout, Storage
from engine.model.spec import ModelSpec

Role = Literal["window", "compressed", "index"]  # what a cached row is


class TensorSource(Protocol):
    """Where the graph's tensors come from."""

    def tensor(self, name: str) -> Tensor:
        """A tensor by production name, input dimension last: float32, or int32 for tables of ids."""
        ...

    def type(self, name: str) -> QuantType:
        """Its block format in the file."""
        ...


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight [N, K] or a stack [G, N, K], and the block format it came in."""

    weight: Tensor
    type: QuantType
    columns: Tensor  # the same values seen as [K, N]

    @classmethod
    def of(cls, weight: Tensor, kind: QuantType) -> Matrix:
        """A matrix over an existing weight."""
        return cls(weight, kind, weight.transpose(-1, -2))


class Rotation:
    """Cosines and sines of a step's positions, laid out for whole rows."""

    __slots__ = ("_cos", "_sin")

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        """Angles' cosine and sine, each [T, rope_dim / 2]."""
        self._cos = torch.stack((cos, cos), -1).flatten(1)
        self._sin = torch.stack((-sin, sin), -1).flatten(1)

    def turn(self, x: Tensor, *, first: int = 0, inverse: bool = False) -> Tensor:
        """Rotate rows [T, D] or heads [T, H, D] of the T positions from the step's row `first` on, in place.

        The same bits as `rope.rotate_by`.
        """
        cos, sin = self._cos[first : first + len(x)], self._sin[first : first + len(x)]
        if x.dim() == 3:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        tail = x[..., -cos.shape[-1] :]
        swapped = tail.unflatten(-1, (-1, 2)).flip(-1).flatten(-2).mul_(sin)
        tail.mul_(cos)
        if inverse:
            tail.sub_(swapped)
        else:
            tail.add_(swapped)
        return x


def joined(source: TensorSource, names: Sequence[str]) -> Matrix:
    """Matrices that share an input as one, stacked by output row; all must have one block format."""
    types = {source.type(name) for name in names}
    weights = [source.tensor(name) for name in names]
    # Mixed formats are legal in a file; then F32 stands for "no common format".
    kind = types.pop() if len(types) == 1 else QuantType.F32
    return Matrix.of(weights[0] if len(weights) == 1 else torch.cat(weights, -2).contiguous(), kind)


class Ops:
    """The engine's own arithmetic for one model and one numerics setting."""

    def __init__(self, spec: ModelSpec, numerics: Numerics, storage: Storage = "packed") -> None:
        yarn = rope.Yarn(
            spec.yarn_factor, spec.yarn_original_context, spec.yarn_beta_fast, spec.yarn_beta_slow
        )
        self.spec = spec
        self.numerics = numerics
        self.storage: Storage = storage
        places = torch.arange(spec.window)
        self.mine = places <= places.unsqueeze(
            1
        )  # [W, W]: places that show the own block, by the query's place
        rows = torch.arange(max(ROW_TILE, spec.index_topk))
        counts = torch.arange(len(rows) + 1).unsqueeze(1)
        self.stairs = torch.where(rows < counts, 0.0, float("-inf"))  # row c shows the first c rows of a tile
        self._plain = rope.frequencies(spec.rope_dim, spec.rope_base)
        # Sylvester's matrix of signs: one product instead of a butterfly's many small steps.
        self._signs = rounding.hadamard(torch.eye(spec.index_dim)).sign()
        self._scaled = rope.frequencies(spec.rope_dim, spec.compress_rope_base, yarn=yarn)

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor:
        """[M, K] to [M, N]."""
        return times(x, matrix.columns)

    def grouped(self, x: Tensor, matrix: Matrix) -> Tensor:
        """[M, G, K] to [M, G, N]."""
        return grouped(x, matrix.weight)

    def rotation(self, positions: Tensor, *, scaled: bool) -> Rotation:
        """Angles of positions [T]: plain for window-only layers, scaled for compressed ones."""
        return Rotation(*rope.cos_sin(positions, self._scaled if scaled else self._plain))

    def codec(self, role: Role) -> RowCodec:
        """How the cache stores rows of a role; without their rounding there are no codes, only values."""
        spec, numerics = self.spec, self.numerics
        if role == "index":
            if self.storage == "packed" and numerics.index_fp4:
                return RowCodec.index(IndexLayout(spec.index_dim))
            return RowCodec.wide(spec.index_dim, partial(self.store, role=role))
        if self.storage == "packed" and numerics.kv_fp8 and numerics.tail_bf16:
            return RowCodec.kv(KvLayout(spec.nope_dim, spec.rope_dim))
        return RowCodec.wide(spec.head_dim, partial(self.store, role=role))

    def store(self, rows: Tensor, role: Role) -> Tensor:
        """Rows [n, D] with the model's roundings, float32."""
        if role == "index":
            return rounding.fp4_round(rows) if self.numerics.index_fp4 else rows
        nope = self.spec.nope_dim
        if self.numerics.kv_fp8:
            rows = rounding.e4m3_round(rows, nope)
        return rounding.bf16_tail(rows, nope) if self.numerics.tail_bf16 else rows

    def spread(self, x: Tensor) -> Tensor:
        """Indexer queries or rows [..., d] after the Hadamard transform that belongs to their rounding."""
        if not self.numerics.index_fp4:
            return x
        width = x.shape[-1]
        return linear(x.reshape(-1, width), self._signs).mul_(width**-0.5).view(x.shape)

    def index(self, x: Tensor) -> Tensor:
        """Indexer queries [..., d] as they are compared with stored rows."""
        return self.store(self.spread(x), "index")
