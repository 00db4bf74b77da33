"""Rows as the cache stores them: the packed layouts of `engine.kernels.rows`, and float32 of the same values.

Packing applies the model's roundings and unpacking gives the rounded values back, exactly; so what a row is
stored as changes no bit of what is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.kernels.ref import rounding
from engine.kernels.rows import IndexLayout, KvLayout


def pack_kv(rows: Tensor, layout: KvLayout) -> Tensor:
    """Attention rows [..., D] as bytes [..., layout.nbytes]."""
    stored = rows.new_zeros(*rows.shape[:-1], layout.nbytes, dtype=torch.uint8)
    codes, scales = rounding.e4m3_codes(rows[..., : layout.nope])
    stored[..., : layout.nope] = codes
    stored[..., layout.scale_at : layout.scale_at + layout.scales] = scales
    _tail(stored, layout).copy_(rows[..., layout.nope :])
    return stored


def unpack_kv(stored: Tensor, layout: KvLayout) -> Tensor:
    """The rounded values [..., D] of packed attention rows, float32."""
    rows = torch.empty(*stored.shape[:-1], layout.width, device=stored.device)
    scales = stored[..., layout.scale_at : layout.scale_at + layout.scales]
    rounding.e4m3_values(stored[..., : layout.nope], scales, out=rows[..., : layout.nope])
    rows[..., layout.nope :] = _tail(stored, layout)
    return rows


def pack_index(rows: Tensor) -> Tensor:
    """Index rows [..., D], after the Hadamard transform, as bytes [..., nbytes of IndexLayout(D)]."""
    return torch.cat(rounding.fp4_codes(rows), -1)


def unpack_index(stored: Tensor, layout: IndexLayout) -> Tensor:
    """The rounded values [..., D] of packed index rows, float32."""
    return rounding.fp4_values(stored[..., : layout.scale_at], stored[..., layout.scale_at :])


@dataclass(frozen=True, slots=True)
class RowCodec:
    """One way to store rows: elements of a stored row, their type, and both directions.

    What `unpack` gives is only read: wide rows are themselves.
    """

    stored: int
    dtype: torch.dtype
    pack: Callable[[Tensor], Tensor]
    unpack: Callable[[Tensor], Tensor]

    @classmethod
    def kv(cls, layout: KvLayout) -> RowCodec:
        """Packed attention rows."""
        pack, unpack = partial(pack_kv, layout=layout), partial(unpack_kv, layout=layout)
        return cls(layout.nbytes, torch.uint8, pack, unpack)

    @classmethod
    def index(cls, layout: IndexLayout) -> RowCodec:
        """Packed index rows."""
        return cls(layout.nbytes, torch.uint8, pack_index, partial(unpack_index, layout=layout))

    @classmethod
    def wide(cls, width: int, rounded: Callable[[Tensor], Tensor]) -> RowCodec:
        """Float32 values after `rounded`: to compare with, and where rows have no codes."""
        return cls(width, torch.float32, rounded, lambda stored: stored)


def _tail(stored: Tensor, layout: KvLayout) -> Tensor:
    return stored[..., layout.tail_at : layout.tail_at + 2 * layout.rope].view(torch.bfloat16)
