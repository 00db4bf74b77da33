"""Writing float32 values as blocks of each tensor type: the door to the fitting code.

Needs numpy alone; knows block layouts, and nothing of files, tensor names or how a model is trained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.affine import Form, fit_affine
from engine.gguf.codebook import fit_iq2_xxs
from engine.gguf.quants import Bytes, Floats, QuantType, block, row_bytes

# Largest magnitude of F16, in which every scale is kept.
_LARGEST: Final = 65504.0
# Values fitted at a time per thread: small enough for a core's cache, large enough to hide the cost of calls.
_CHUNK_VALUES: Final = {
    QuantType.Q8_0: 1 << 20,
    QuantType.Q2_K: 1 << 15,
    QuantType.Q4_K: 1 << 15,
    QuantType.IQ2_XXS: 1 << 13,
}


def encode(
    values: Floats, type: QuantType, *, importance: Floats | None = None, threads: int | None = None
) -> Bytes:
    """Encode float32 `[..., n]` to uint8 `[..., row_bytes(type, n)]`.

    `importance` (non-negative, of a shape that broadcasts to that of `values`; usually `[n]`, one number per
    input column) weighs the squared error; Q2_K, Q4_K and IQ2_XXS use it.
    `threads` defaults to the machine's cores.
    ModelFileError where the width is not a whole number of blocks or a value cannot be stored.
    """
    values = np.ascontiguousarray(values, np.float32)
    width = row_bytes(type, values.shape[-1])
    if type is QuantType.I32:
        raise ModelFileError("I32 holds whole numbers, found float32 values; allowed are the floating types")
    if type not in (QuantType.F32, QuantType.BF16):
        _check_range(values, type)
    if type in (QuantType.F32, QuantType.F16, QuantType.BF16):
        return _encode_plain(values, type)
    size = block(type)
    blocks = values.reshape(-1, size.values)
    weights = _weights(values.shape, importance).reshape(-1, size.values) if type in _FITTED else None
    out = np.empty((len(blocks), size.nbytes), np.uint8)

    def work(part: slice) -> None:
        out[part] = _fit(blocks[part], None if weights is None else weights[part], type)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for _ in pool.map(work, _parts(len(blocks), _CHUNK_VALUES[type] // size.values)):
            pass
    return out.reshape(*values.shape[:-1], width)


def _parts(n: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, n, step))


def _check_range(values: Floats, type: QuantType) -> None:
    bad = ~(np.abs(values) <= _LARGEST)
    if bad.any():
        raise ModelFileError(
            f"{type.name} stores finite values up to {_LARGEST:.0f}, found {int(bad.sum())} others, "
            f"the first {values[bad][0]:.6g}"
        )


def _encode_plain(values: Floats, type: QuantType) -> Bytes:
    """F32, F16 and BF16, rounded to nearest even."""
    if type is QuantType.F32:
        return values.astype("<f4").view(np.uint8)
    if type is QuantType.F16:
        return values.astype("<f2").view(np.uint8)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = bits >> np.uint32(16) | np.uint32(64)
    return np.where(np.isnan(values), quiet_nan, rounded).astype("<u2").view(np.uint8)


def _weights(shape: tuple[int, ...], importance: Floats | None) -> Floats:
    """Importance of every value, mean about one, and never quite zero."""
    if importance is None:
        return np.broadcast_to(np.float32(1), shape)
    given = np.asarray(importance, np.float32)
    if not np.isfinite(given).all() or (given < 0).any():
        raise ModelFileError(
            "importance holds NaN, infinite or negative numbers; allowed are finite ones from 0 on"
        )
    mean = np.float32(given.mean(dtype=np.float64))
    scaled = given / mean if mean > 0 else np.ones_like(given)
    try:
        return np.broadcast_to(scaled + np.float32(1e-4), shape)
    except ValueError:
        raise ModelFileError(
            f"importance has shape {given.shape}, allowed is one that broadcasts to {shape}"
        ) from None


def _fit(values: Floats, weights: Floats | None, type: QuantType) -> Bytes:
    if weights is None:
        return _fit_q8_0(values)
    return _FITTED[type](values, weights)


def _fit_q8_0(values: Floats) -> Bytes:
    """F16 scale by the largest magnitude, codes against the scale as stored."""
    scale = (np.abs(values).max(axis=1) / np.float32(127)).astype("<f2").astype(np.float32)
    step = scale[:, None]
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step > 0)
    codes = np.clip(np.rint(values * inverse), -127, 127).astype(np.int8)
    return np.concatenate([_half(scale), codes.view(np.uint8)], axis=1)


def _half(scale: Floats) -> Bytes:
    """Bytes of F16 scales, `[N, 2]`."""
    return scale.astype("<f2")[:, None].view(np.uint8)


def _fit_q2_k(values: Floats, weights: Floats) -> Bytes:
    fit = fit_affine(values.reshape(-1, 16, 16), weights.reshape(-1, 16, 16), Form(top_code=3, top_scale=15))
    blocks = np.empty((len(values), 84), np.uint8)
    blocks[:, :16] = fit.scales.astype(np.uint8) | fit.mins.astype(np.uint8) << 4
    codes = fit.codes.astype(np.uint8).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    blocks[:, 16:80] = np.bitwise_or.reduce(codes << shifts, axis=2).reshape(-1, 64)
    blocks[:, 80:82] = _half(fit.d)
    blocks[:, 82:84] = _half(fit.dmin)
    return blocks


def _fit_q4_k(values: Floats, weights: Floats) -> Bytes:
    fit = fit_affine(values.reshape(-1, 8, 32), weights.reshape(-1, 8, 32), Form(top_code=15, top_scale=63))
    scales, mins = fit.scales.astype(np.uint8), fit.mins.astype(np.uint8)
    blocks = np.empty((len(values), 144), np.uint8)
    blocks[:, 0:2] = _half(fit.d)
    blocks[:, 2:4] = _half(fit.dmin)
    blocks[:, 4:8] = scales[:, :4] | scales[:, 4:] >> 4 << 6
    blocks[:, 8:12] = mins[:, :4] | mins[:, 4:] >> 4 << 6
    blocks[:, 12:16] = scales[:, 4:] & 15 | mins[:, 4:] << 4
    codes = fit.codes.astype(np.uint8).reshape(-1, 4, 2, 32)
    blocks[:, 16:] = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    return blocks


_FITTED: Final[dict[QuantType, Callable[[Floats, Floats], Bytes]]] = {
    QuantType.Q2_K: _fit_q2_k,
    QuantType.Q4_K: _fit_q4_k,
    QuantType.IQ2_XXS: fit_iq2_xxs,
}
