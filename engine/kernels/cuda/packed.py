"""Launches the packed products of `gemv.cu` and `gated.cu`: the fast twin of `engine.kernels.ref.packed`.

The partition of every sum is fixed by a matrix's shape, so a row's bits are the same for 1 and for 32 rows.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from engine.errors import EngineError
from engine.kernels import layouts
from engine.kernels.cuda.build import load
from engine.kernels.layouts import IQ2, Q2, Q8, Half
from engine.kernels.ref.packed import Choice, Planes, Routes

WARPS = 8
THREADS = WARPS * 32
CHOOSE_THREADS = 1024
GATED_THREADS = 512
GATED_SHARED = 96256  # bytes: `Shared` of gated.cu, below the 99 KiB of a GB10
LEAST_CAPABILITY = 9  # major; older cards have no dependent launches (engine/kernels/triton/chain.py)
MOST_CANDIDATES = 128  # of a thread that chooses
DOWN_BLOCKS = 2  # persistent blocks a multiprocessor
ENOUGH_WARPS = 2048  # of a launch: a whole H200 has room for 2,112 at 16 a multiprocessor


class CudaProducts:
    """The products of a decode step, and the indexer's choice, on one device."""

    def __init__(self, device: torch.device) -> None:
        index = device.index or 0
        major, minor = torch.cuda.get_device_capability(index)
        if major < LEAST_CAPABILITY:
            raise EngineError(
                f"the device kernels need compute capability {LEAST_CAPABILITY}.0 (Hopper, Blackwell), "
                f"{torch.cuda.get_device_name(index)} has {major}.{minor}; run the model on the CPU"
            )
        self._module = load("gemv.cu", index)
        self._gated = load("gated.cu", index)
        self._select = load("select.cu", index)
        self._multiprocessors = torch.cuda.get_device_properties(index).multi_processor_count
        self._book = layouts.codebook_selectors().to(device)
        self._sign = layouts.sign_selectors().to(device)

    def choose(self, positions: Tensor, ratio: int, out: Choice) -> None:
        """The best rows of every token, ascending, from `out.scores`; all where there are not more."""
        rows, chunks, topk = out.keys.shape
        each = max(4, triton.next_power_of_2(-(-chunks * topk // CHOOSE_THREADS)))
        if each > MOST_CANDIDATES:
            raise EngineError(
                f"the indexer chooses among at most {MOST_CANDIDATES * CHOOSE_THREADS} candidates, "
                f"this context gives {chunks * topk}; serve it with a smaller one"
            )
        scores, stride = out.scores, out.scores.stride(0)
        candidates = (out.keys, out.candidates)
        found, row = (scores, stride, positions), chunks * topk
        self._select.launch("narrow", (chunks, rows), THREADS, *found, *candidates, ratio, topk, chained=True)
        kept = (positions, *candidates, out.chosen, row, ratio, topk)
        self._select.launch(f"choose_{each}", (rows, 1), CHOOSE_THREADS, *kept, chained=True)

    def dense(
        self, x: Planes, q8: Q8 | None, q_out: Tensor | None, f16: Half | None, h_out: Tensor | None
    ) -> None:
        """`q_out` [M, N] of a Q8_0 matrix and `h_out` of an F16 one, either may be missing."""
        rows = x.ints.shape[0]
        q_weight, q_scales = (q8.codes, q8.scales) if q8 is not None else (None, None)
        values = f16.values if f16 is not None else None
        first, second = _shape(q_weight), _shape(values)
        blocks = _blocks(first[0], first[2]) + _blocks(second[0], second[2])
        self._module.launch(
            f"dense_{_columns(rows)}",
            (blocks, 1),
            THREADS,
            q_weight,
            q_scales,
            q_out,
            *first,
            _stride(q_out),
            values,
            h_out,
            *second,
            _stride(h_out),
            x.ints,
            x.scales,
            x.halves,
            rows,
            chained=True,
        )

    def grouped(self, x: Planes, q8: Q8, out: Tensor) -> None:
        """`out` [M, G N] of planes [G, M, K] and a matrix [G N, K]: each group with its own rows."""
        groups, rows = x.ints.shape[:2]
        tiles, width, cuts = _shape(q8.codes)
        tiles //= groups
        self._module.launch(
            f"grouped_{_columns(rows)}",
            (_blocks(tiles, cuts), groups),
            THREADS,
            q8.codes,
            q8.scales,
            out,
            tiles,
            width,
            cuts,
            x.ints,
            x.scales,
            rows,
            chained=True,
        )

    def routed_up(self, x: Planes, up: IQ2, routes: Routes, limit: float, out: Tensor) -> None:
        """Weighted gated unit `out` [M K, F] of every pair from x [M, C] and stacks [E, 2 F, ..], gate
        first."""
        width, inner = up.words.shape[2] * layouts.SUPER, up.words.shape[1] * layouts.TILE // 2
        self._gated.launch(
            "routed_up",
            (self._multiprocessors, 1),
            GATED_THREADS,
            up.words,
            up.scales,
            out,
            width,
            inner,
            limit,
            x.ints,
            x.scales,
            routes.weights,
            self._book,
            self._sign,
            routes.active,
            routes.counts,
            routes.pairs,
            routes.total,
            routes.experts.shape[1],
            routes.experts.numel(),
            1,
            chained=True,
            shared=GATED_SHARED,
        )

    def routed_down(self, x: Planes, sums: Tensor, down: Q2, shared: Q8, routes: Routes, out: Tensor) -> None:
        """`out` [M K + M, C] of planes of as many rows: every pair with its expert, then the shared expert's
        rows.

        `sums` float16 [M K, F / 256, 2, 16] are the sums of the integers of 16 values each in parts of 2^15.
        """
        rows, used = routes.experts.shape
        tiles, width, cuts = _shape(shared.codes)
        blocks = _blocks(tiles, cuts) + self._multiprocessors * DOWN_BLOCKS
        self._module.launch(
            f"routed_down_{_columns(rows)}",
            (blocks, 1),
            THREADS,
            shared.codes,
            shared.scales,
            cuts,
            rows,
            down.words,
            down.minors,
            down.scales,
            out,
            width,
            out.shape[1],
            x.ints,
            x.scales,
            sums,
            routes.active,
            routes.counts,
            routes.pairs,
            routes.total,
            used,
            chained=True,
        )


def _shape(plane: Tensor | None) -> tuple[int, int, int]:
    """Tiles, inner width and cuts of a matrix's plane [tiles, blocks, 4096].

    A warp reads one cut of a tile; narrow matrices are cut further, so that enough warps read at a time.  The
    cuts belong to the shape, never to the card or the number of rows: they fix the order of the sums.
    """
    if plane is None:
        return 0, layouts.SUPER, 1
    tiles, blocks = plane.shape[:2]
    cuts = 1
    while cuts < WARPS and blocks % (cuts * 2) == 0 and tiles * cuts < ENOUGH_WARPS:
        cuts *= 2
    return tiles, blocks * layouts.SUPER, cuts


def _blocks(tiles: int, cuts: int) -> int:
    return -(-tiles // (WARPS // cuts))


def _columns(rows: int) -> int:
    """Groups of eight columns that the launched kernel has room for."""
    return 1 if rows <= 8 else 2 if rows <= 16 else 4


def _stride(out: Tensor | None) -> int:
    return 0 if out is None else out.stride(0)
