"""Pairs of the families `codes` and `storage`: rows against their definition, and packed against wide.

The definition is written here a second time, in float64 and from exponents alone, so that it can disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.kernels.ref.rows import RowCodec
from engine.kernels.rows import E4M3_BLOCK, FP4_BLOCK, SCALE_BIAS, IndexLayout, KvLayout, Storage
from gates.equivalence.seen import Compared, Seen
from gates.equivalence.workbench import Workbench, as_values, in_chunks

ROWS = 64
KV, INDEX = KvLayout(128, 32), IndexLayout(64)
E4M3 = np.array([math.ldexp(8 + m, e - 10) if e else math.ldexp(m, -9) for e in range(16) for m in range(8)])
E4M3_LEVELS = E4M3[:127]  # the last code is no number
FP4_LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3_FLOOR, FP4_FLOOR = 1e-4, 6.0 * 2.0**-126  # least peak of a block
DECODED = 3  # tokens computed one by one after a prompt


def rows_of(kind: str, width: int, block: int, top: float, seed: int) -> NDArray[np.float32]:
    """Rows [ROWS, width] that are hard to round; `top` is the largest level of the format."""
    drawn = np.random.default_rng([seed, width])
    rows: NDArray[Any] = drawn.standard_normal((ROWS, width)).astype(np.float32)
    powers = np.ldexp(1.0, drawn.integers(-20, 20, (ROWS, 1)))
    if kind == "powers_of_two":
        rows = np.ldexp(1.0, drawn.integers(-9, 9, rows.shape)) * np.sign(rows) * powers
    elif kind == "grid_ends":  # the peak of a block is the end of the grid, or its neighbour on either side
        ends = (top * powers).astype(np.float32)
        far = np.array([np.inf, 0, 0], np.float32)[np.arange(ROWS) % 3][:, None]
        rows = np.clip(rows, -1, 1) * ends / 2
        rows[:, ::block] = np.where(np.arange(ROWS)[:, None] % 3 == 2, ends, np.nextafter(ends, far))
    elif kind == "zeros":
        rows = np.where(drawn.random(rows.shape) < 0.5, 0.0, -0.0) + np.where(
            drawn.random(rows.shape) < 0.2, rows, -0.0
        )
        rows[::3] = -0.0
    elif kind == "subnormals":
        rows = np.where(drawn.random(rows.shape) < 0.5, rows * np.float32(1e-40), rows * np.float32(1e-8))
    elif kind == "block_ends":
        rows[:, ::block] *= 1000
        rows[:, block - 1 :: block] *= -7
    elif kind == "decades":
        rows = rows * np.logspace(-6, 3, ROWS)[:, None]
    elif kind == "any_bits":
        bits = drawn.integers(0, 2**32, rows.shape, np.uint32).view(np.float32)
        rows = np.clip(np.nan_to_num(bits, nan=0.5), -1e34, 1e34)
    return np.ascontiguousarray(rows, np.float32)


def defined(
    rows: NDArray[np.float32], block: int, levels: NDArray[np.float64], floor: float
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes [n, width] with their sign as the highest of their bits, and E8M0 bytes [n, width / block].

    The scale is the least power of two that brings the block's peak within the levels; ties go to the even
    code.
    """
    parts = rows.astype(np.float64).reshape(len(rows), -1, block)
    peak = np.maximum(np.abs(parts).max(-1), np.float64(np.float32(floor)))
    mantissa, exponent = np.frexp(peak / levels[-1])
    power = np.where(mantissa == 0.5, exponent - 1, exponent)
    sizes = np.minimum(np.abs(parts) / np.ldexp(1.0, power)[..., None], levels[-1])
    above = np.clip(np.searchsorted(levels, sizes), 1, len(levels) - 1)
    low, high = levels[above - 1], levels[above]
    up = (sizes - low > high - sizes) | ((sizes - low == high - sizes) & (above % 2 == 0))
    codes = np.where(up, above, above - 1) | np.where(np.signbit(parts), len(levels) + len(levels) % 2, 0)
    return codes.reshape(rows.shape).astype(np.uint8), (power + SCALE_BIAS).astype(np.uint8)


def kv_codes(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Codes and scales of attention rows."""
    rows = rows_of(case["kind"], KV.width, E4M3_BLOCK, 448.0, bench.sizes.seed)
    stored = RowCodec.kv(KV).pack(torch.from_numpy(rows)).numpy()
    codes, scales = defined(rows[:, : KV.nope], E4M3_BLOCK, E4M3_LEVELS, E4M3_FLOOR)
    found = {"scales": stored[:, KV.scale_at : KV.scale_at + KV.scales], "codes": stored[:, : KV.nope]}
    return Compared({"scales": scales, "codes": codes}, found)


def index_codes(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Codes and scales of index rows, two codes a byte."""
    rows = rows_of(case["kind"], INDEX.width, FP4_BLOCK, 6.0, bench.sizes.seed)
    stored = RowCodec.index(INDEX).pack(torch.from_numpy(rows)).numpy()
    codes, scales = defined(rows, FP4_BLOCK, FP4_LEVELS, FP4_FLOOR)
    wanted = {"scales": scales, "codes": codes[:, ::2] | codes[:, 1::2] << 4}
    found = {"scales": stored[:, INDEX.scale_at :], "codes": stored[:, : INDEX.scale_at]}
    return Compared(wanted, found)


def packed_twice(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Values of packed rows, and the same after another round."""
    once: Seen = {}
    twice: Seen = {}
    for name, codec, width, block, top in (
        ("attention rows", RowCodec.kv(KV), KV.width, E4M3_BLOCK, 448.0),
        ("index rows", RowCodec.index(INDEX), INDEX.width, FP4_BLOCK, 6.0),
    ):
        rows = torch.from_numpy(rows_of(case["kind"], width, block, top, bench.sizes.seed))
        first = codec.unpack(codec.pack(rows))
        once[name], twice[name] = first.numpy(), codec.unpack(codec.pack(first)).numpy()
    return Compared(once, twice)


def storage(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A prompt and a few decoded tokens over packed rows and over wide ones."""
    tokens = bench.tokens(case["at"] + DECODED)
    found = []
    kinds: tuple[Storage, Storage] = ("packed", "wide")
    for kind in kinds:
        runner = bench.runner(kind)
        seen = in_chunks(runner, runner.new_cache(), tokens, [case["at"], *[1] * DECODED])
        found.append(as_values(seen, runner.spec, kind))
    wide = bench.runner("wide").ledger.page_bytes > 2 * bench.runner().ledger.page_bytes
    return Compared(found[0], found[1], {"wide rows are wider": wide})
