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
from engine.kernels.ref.attention import ROW_TILE, Window
from engine.kernels.ref.linear import Packed, grouped, linear, times
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
    """A weight [K, N], or a stack [G, K, N], as products want it, and the block format it came in."""

    factor: Tensor | Packed
    type: QuantType

    @classmethod
    def of(cls, weight: Tensor, kind: QuantType, *, packed: bool = True) -> Matrix:
        """A matrix with the values of a weight [N, K] or of a stack [G, N, K], as files hold them."""
        columns = weight.transpose(-1, -2)
        return cls(Packed(columns) if packed and Packed.packs(columns) else columns.contiguous(), kind)

    def values(self) -> Tensor:
        """The weight as a plain tensor, inputs first."""
        return self.factor.columns() if isinstance(self.factor, Packed) else self.factor


class Rotation:
    """The angles of a step's positions as complex numbers of length 1, for both directions."""

    __slots__ = ("_back", "_forth", "_width")

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        """Angles' cosine and sine, each [T, rope_dim / 2]."""
        self._forth = torch.complex(cos, sin)
        self._back = torch.complex(cos, -sin)
        self._width = 2 * cos.shape[1]

    def turn(self, x: Tensor, *, first: int = 0, inverse: bool = False) -> Tensor:
        """Rotate rows [T, D] or heads [T, H, D] of the T positions from the step's row `first` on, in place.

        A pair is a complex number, so one product does it, a third of the time of `rope.rotate_by`.  Where
        `rope_dim` is a multiple of 16 it gives the same bits.
        """
        turns = self._back if inverse else self._forth
        if len(x) != len(turns):
            turns = turns[first : first + len(x)]
        if x.dim() == 3:
            turns = turns.unsqueeze(1)
        tail = x[..., -self._width :]
        torch.view_as_complex(tail.view(*tail.shape[:-1], -1, 2)).mul_(turns)
        return x


def joined(source: TensorSource, names: Sequence[str], *, rounded: bool = False) -> Matrix:
    """Matrices that share an input as one, stacked by output row.

    `rounded` says that rows made of the product are rounded to a few bits.  Then a difference in the last bit
    may become a whole step, so such products keep the order of summation that other implementations have.
    """
    weight, kind = _stacked(source, names)
    return Matrix.of(weight, kind, packed=not rounded)


def experts(source: TensorSource, names: Sequence[str]) -> list[Matrix]:
    """The same for stacks with one matrix an expert."""
    weights, kind = _stacked(source, names)
    return [Matrix.of(weight, kind) for weight in weights.unbind()]


def groups(source: TensorSource, name: str, count: int) -> Matrix:
    """A weight [G N, K] as a stack of `count` matrices."""
    return Matrix.of(source.tensor(name).unflatten(0, (count, -1)), source.type(name))


def _stacked(source: TensorSource, names: Sequence[str]) -> tuple[Tensor, QuantType]:
    """Weights by output row, and their block format; F32 where a file mixes several, which is legal."""
    types = {source.type(name) for name in names}
    weights = [source.tensor(name) for name in names]
    kind = types.pop() if len(types) == 1 else QuantType.F32
    return weights[0] if len(weights) == 1 else torch.cat(weights, -2), kind


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
        self.mine = places <= places.unsqueeze(1)  # [W, W]: places of the own block, by the query's place
        self.shares = Window.shares_of(self.mine)
        rows = torch.arange(max(ROW_TILE, spec.index_topk))
        counts = torch.arange(len(rows) + 1).unsqueeze(1)
        self.stairs = torch.where(rows < counts, 0.0, float("-inf"))  # row c shows the first c rows of a tile
        self._plain = rope.frequencies(spec.rope_dim, spec.rope_base)
        # Sylvester's matrix of signs: one product instead of a butterfly's many small steps.
        self._signs = rounding.hadamard(torch.eye(spec.index_dim)).sign()
        self._scaled = rope.frequencies(spec.rope_dim, spec.compress_rope_base, yarn=yarn)

    def linear(self, x: Tensor, matrix: Matrix) -> Tensor:
        """[M, K] to [M, N]."""
        factor = matrix.factor
        return factor.times(x) if isinstance(factor, Packed) else times(x, factor)

    def grouped(self, x: Tensor, matrix: Matrix) -> Tensor:
        """[M, G, K] to [M, G, N]."""
        assert isinstance(matrix.factor, Tensor)
        return grouped(x, matrix.factor)

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
        head, tail = rows.split((self.spec.nope_dim, self.spec.rope_dim), -1)
        if self.numerics.kv_fp8:
            head = rounding.e4m3_blocks(head)
        if self.numerics.tail_bf16:
            tail = tail.bfloat16().float()
        return torch.cat((head, tail), -1)

    def spread(self, x: Tensor) -> Tensor:
        """Indexer queries or rows [..., d] after the Hadamard transform that belongs to their rounding."""
        if not self.numerics.index_fp4:
            return x
        width = x.shape[-1]
        return linear(x.reshape(-1, width), self._signs).mul_(width**-0.5).view(x.shape)

    def index(self, x: Tensor) -> Tensor:
        """Indexer queries [..., d] as they are compared with stored rows."""
        return self.store(self.spread(x), "index")
