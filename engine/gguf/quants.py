"""The block formats of tensor data: their sizes, and plain decoders to float32.

Needs numpy alone and knows nothing of files, tensor names or devices.
The layouts are described field by field in docs/model.md; here each decoder handles `[N, bytes]` blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Blocks decoded at a time: 1,024 blocks of 256 values make 1 MiB of float32, which stays in a core's cache.
_STRIDE: Final = 1024


class QuantType(IntEnum):
    """Tensor types of the recipes in use; the numbers are those of the container format."""

    F32 = 0
    F16 = 1
    Q8_0 = 8
    Q2_K = 10
    Q4_K = 12
    IQ2_XXS = 16
    I32 = 26
    BF16 = 30


@dataclass(frozen=True, slots=True)
class Block:
    """Size of one block: values along the inner dimension, and bytes."""

    values: int
    nbytes: int


@cache
def block(type: QuantType) -> Block:
    """Block size of a type."""
    sizes = {
        QuantType.F32: (1, 4),
        QuantType.F16: (1, 2),
        QuantType.BF16: (1, 2),
        QuantType.I32: (1, 4),
        QuantType.Q8_0: (32, 34),
        QuantType.Q2_K: (256, 84),
        QuantType.Q4_K: (256, 144),
        QuantType.IQ2_XXS: (256, 66),
    }
    return Block(*sizes[type])


def row_bytes(type: QuantType, n: int) -> int:
    """Bytes of a row of `n` values; ModelFileError if `n` is not a whole number of blocks."""
    size = block(type)
    if n < 0 or n % size.values:
        raise ModelFileError(
            f"a row of {type.name} holds a multiple of {size.values} values, found {n}; "
            "choose another type or another width"
        )
    return n // size.values * size.nbytes


def decode(raw: Bytes, type: QuantType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Decode flat bytes to a new float32 array of `shape` (int32 for I32), inner dimension last.

    ModelFileError if the number of bytes does not belong to the shape.
    """
    width = shape[-1] if shape else 1
    expected = row_bytes(type, width) * prod(shape[:-1])
    if raw.dtype != np.uint8 or raw.ndim != 1 or raw.size != expected:
        raise ModelFileError(
            f"{type.name} data of shape {shape} is {expected} flat bytes, found {raw.dtype} {raw.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # any bytes are valid, infinities and NaN included
        plain = _PLAIN.get(type)
        values = plain(raw) if plain is not None else _decode_blocked(raw, type)
    return values.reshape(shape)


def _decode_blocked(raw: Bytes, type: QuantType) -> Floats:
    size = block(type)
    blocks = raw.reshape(-1, size.nbytes)
    values = np.empty((len(blocks), size.values), np.float32)
    for start in range(0, len(blocks), _STRIDE):
        values[start : start + _STRIDE] = _BLOCKED[type](blocks[start : start + _STRIDE])
    return values


# The 256 codewords in ascending order, each read as a base-3 number of eight digits (the first value is the
# lowest digit; digits 0, 1, 2 stand for the magnitudes 8, 25, 43).  Stored as the gaps between neighbours,
# one byte each; the byte ff means "255 further, and no codeword here".
_CODEWORD_GAPS: Final = bytes.fromhex(
    "00020202020202060204020202060604020602060c080206040e1e0c0c0212241a02060a020602040c0a02060c060204"
    "0c0e14020a1802121e12060402060c04020602161818380a4602060a08120c06040e060c12080a300a32060c040c142a"
    "20220e440206121c1a04442e2c02061610080232083002500206120e281c1460180c307e340206060402060608040a02"
    "0612121c0804180818080a1e060c2410160a3c5202061204322a040a382012060406022406181a2e465002184a262a0a"
    "06203c3c4e0612181e28381e240456022e86d60206141c1c0c0c40480206040e122420221614122652584a060c062e16"
    "283a32140a58b42c9222161e4a60ff0930"
)


@cache
def iq2_codewords() -> Floats:
    """Magnitudes of the IQ2_XXS codebook, `[256, 8]`, read-only."""
    gaps = np.frombuffer(_CODEWORD_GAPS, np.uint8)
    numbers = np.cumsum(gaps, dtype=np.int64)[gaps != 255]
    digits = numbers[:, None] // 3 ** np.arange(8) % 3
    return _frozen(np.array([8, 25, 43], np.float32)[digits])


@cache
def iq2_signs() -> Floats:
    """Signs (+1, -1) of the 128 sign indices, `[128, 8]`, read-only.

    Bit i of the index is the sign of value i; the eighth sign makes the number of minus signs even.
    """
    index = np.arange(128)
    bits = index[:, None] >> np.arange(7) & 1
    bits = np.concatenate([bits, bits.sum(axis=1, keepdims=True) % 2], axis=1)
    return _frozen((1 - 2 * bits).astype(np.float32))


def _frozen(table: Floats) -> Floats:
    table.setflags(write=False)
    return table


def _decode_f32(raw: Bytes) -> Floats:
    return raw.view("<f4").astype(np.float32)


def _decode_i32(raw: Bytes) -> npt.NDArray[np.int32]:
    return raw.view("<i4").astype(np.int32)


def _decode_f16(raw: Bytes) -> Floats:
    return raw.view("<f2").astype(np.float32)


def _decode_bf16(raw: Bytes) -> Floats:
    return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _half(blocks: Bytes, at: int) -> Floats:
    """The F16 scale at byte `at` of each block, `[N, 1]`."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _decode_q8_0(blocks: Bytes) -> Floats:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _decode_q2_k(blocks: Bytes) -> Floats:
    n = len(blocks)
    scales = _half(blocks, 80) * (blocks[:, :16] & 15).astype(np.float32)
    mins = _half(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    codes = blocks[:, 16:80].reshape(n, 2, 1, 32) >> shifts & np.uint8(3)
    values = codes.reshape(n, 16, 16).astype(np.float32)
    values *= scales[:, :, None]
    values -= mins[:, :, None]
    return values.reshape(n, 256)


def _decode_q4_k(blocks: Bytes) -> Floats:
    n = len(blocks)
    low, high, mixed = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale_codes = np.concatenate([low & 63, mixed & 15 | low >> 2 & 48], axis=1)
    min_codes = np.concatenate([high & 63, mixed >> 4 | high >> 2 & 48], axis=1)
    scales = _half(blocks, 0) * scale_codes.astype(np.float32)
    mins = _half(blocks, 2) * min_codes.astype(np.float32)
    shifts = np.array([[0], [4]], np.uint8)
    codes = blocks[:, 16:].reshape(n, 4, 1, 32) >> shifts & np.uint8(15)
    values = codes.reshape(n, 8, 32).astype(np.float32)
    values *= scales[:, :, None]
    values -= mins[:, :, None]
    return values.reshape(n, 256)


def _decode_iq2_xxs(blocks: Bytes) -> Floats:
    n = len(blocks)
    groups = blocks[:, 2:].reshape(n, 8, 8)
    words = np.ascontiguousarray(groups[:, :, 4:]).view("<u4")  # [N, 8, 1]
    scales = (
        _half(blocks, 0) * (np.float32(0.5) + (words[:, :, 0] >> 28).astype(np.float32)) * np.float32(0.25)
    )
    signs = iq2_signs()[words >> np.arange(0, 28, 7, dtype=np.uint32) & np.uint32(127)]
    values = iq2_codewords()[groups[:, :, :4]]
    values *= scales[:, :, None, None]
    values *= signs
    return values.reshape(n, 256)


_PLAIN: Final[dict[QuantType, Callable[[Bytes], npt.NDArray[Any]]]] = {
    QuantType.F32: _decode_f32,
    QuantType.F16: _decode_f16,
    QuantType.BF16: _decode_bf16,
    QuantType.I32: _decode_i32,
}
_BLOCKED: Final[dict[QuantType, Callable[[Bytes], Floats]]] = {
    QuantType.Q8_0: _decode_q8_0,
    QuantType.Q2_K: _decode_q2_k,
    QuantType.Q4_K: _decode_q4_k,
    QuantType.IQ2_XXS: _decode_iq2_xxs,
}
