"""Products of packed weights with packed activations in plain torch: the twin of
`engine.kernels.cuda.packed`.

Decodes everything to float32 first; says what the fast kernels mean and runs anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels import layouts
from engine.kernels.layouts import IQ2, Q2, Q8, Half
from engine.kernels.ref.index import select
from engine.kernels.ref.linear import grouped, linear
from engine.kernels.ref.moe import glu

CHUNK = 2048  # index scores that are narrowed to the best at a time
PAIRS = 4  # most of a group: with both halves, the columns of one matrix instruction


@dataclass(frozen=True, slots=True)
class Planes:
    """Activations [.., K]: int8 [.., K / 8, 16] (eight high, eight low), float32 [.., K / 256], float16 [..,
    K / 8, 16].

    value = scale * (256 high + low); the float16 parts, high and low, are there where an F16 matrix reads
    them.
    """

    ints: Tensor
    scales: Tensor
    halves: Tensor | None = None

    @classmethod
    def empty(cls, shape: tuple[int, ...], device: torch.device, *, halves: bool = False) -> Planes:
        """Room for values of `shape`, zero."""
        *lead, width = shape
        return cls(
            torch.zeros(*lead, width // 8, 16, dtype=torch.int8, device=device),
            torch.zeros(*lead, width // layouts.SUPER, device=device),
            torch.zeros(*lead, width // 8, 16, dtype=torch.float16, device=device) if halves else None,
        )

    def integers(self) -> Tensor:
        """What the integer parts stand for, float32 [.., K]."""
        high, low = self.ints.unflatten(-1, (2, 8)).float().unbind(-2)
        whole = (high * 256 + low).flatten(-2).unflatten(-1, (-1, layouts.SUPER))
        return (whole * self.scales.unsqueeze(-1)).flatten(-2)

    def floats(self) -> Tensor:
        """What the float16 parts stand for, float32 [.., K]."""
        assert self.halves is not None
        high, low = self.halves.unflatten(-1, (2, 8)).float().unbind(-2)
        return (high + low).flatten(-2)


@dataclass(frozen=True, slots=True)
class Routes:
    """Experts int32 [M, K] and weights [M, K] of a step, and groups of up to four pairs of one expert each.

    A pair is row K + slot.  `active` [M K] names each group's expert, `counts` its pairs, `pairs` [M K,
    4] which, `total` [1] is the number of groups.  `scratch` int32 [2 M K + 1], zero at first, belongs to
    whoever fills the rest in.
    """

    experts: Tensor
    weights: Tensor
    active: Tensor
    counts: Tensor
    pairs: Tensor
    total: Tensor
    scratch: Tensor

    @classmethod
    def empty(cls, rows: int, used: int, device: torch.device) -> Routes:
        """Room for a step."""

        def integers(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        weights, most = torch.zeros(rows, used, device=device), rows * used
        groups = integers(most), integers(most), integers(most, PAIRS), integers(1)
        return cls(integers(rows, used), weights, *groups, integers(2 * most + 1))


@dataclass(frozen=True, slots=True)
class Choice:
    """Index scores [M, R], the best of each chunk and their keys [M, R / 2048, K], and chosen rows [M, K]."""

    scores: Tensor
    keys: Tensor
    candidates: Tensor
    chosen: Tensor

    @classmethod
    def empty(cls, rows: int, most: int, topk: int, device: torch.device) -> Choice:
        """Room for `most` index rows a sequence."""
        chunks = -(-most // CHUNK)

        def integers(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        scores = torch.zeros(rows, chunks * CHUNK, device=device)
        return cls(scores, integers(rows, chunks, topk), integers(rows, chunks, topk), integers(rows, topk))


class ReferenceProducts:
    """The products of a decode step, and the indexer's choice."""

    def choose(self, positions: Tensor, ratio: int, out: Choice) -> None:
        """The best rows of every token, ascending, from `out.scores`; all where there are not more."""
        topk = out.chosen.shape[1]
        for row, position in enumerate(positions.tolist()):
            count = (position + 1) // ratio
            best = torch.arange(topk) if count <= topk else select(out.scores[row : row + 1, :count], topk)
            out.chosen[row] = best.flatten()

    def dense(
        self, x: Planes, q8: Q8 | None, q_out: Tensor | None, f16: Half | None, h_out: Tensor | None
    ) -> None:
        """`q_out` [M, N] of a Q8_0 matrix and `h_out` of an F16 one, either may be missing."""
        if q8 is not None and q_out is not None:
            q_out.copy_(linear(x.integers(), layouts.decode_q8(q8)))
        if f16 is not None and h_out is not None:
            h_out.copy_(linear(x.floats(), layouts.join_half(f16).float()))

    def grouped(self, x: Planes, q8: Q8, out: Tensor) -> None:
        """`out` [M, G N] of planes [G, M, K] and a matrix [G N, K]: each group with its own rows."""
        values = x.integers()
        weight = layouts.decode_q8(q8).unflatten(0, (values.shape[0], -1))
        out.copy_(grouped(values.transpose(0, 1), weight.transpose(1, 2)).flatten(1))

    def routed_up(self, x: Planes, up: IQ2, routes: Routes, limit: float, out: Tensor) -> None:
        """Weighted gated unit `out` [M K, F] of every pair from x [M, C] and stacks [E, 2 F, ..], gate
        first."""
        values, used = x.integers(), routes.experts.shape[1]
        for pair, expert in enumerate(routes.experts.flatten().tolist()):
            weight = layouts.decode_iq2(IQ2(up.words[expert], up.scales[expert]))
            gate, lift = _row(values, pair // used, weight).chunk(2)
            out[pair] = routes.weights.flatten()[pair] * glu(gate, lift, limit)

    def routed_down(self, x: Planes, sums: Tensor, down: Q2, shared: Q8, routes: Routes, out: Tensor) -> None:
        """`out` [M K + M, C] of planes of as many rows: every pair with its expert, then the shared expert's
        rows.

        `sums` are what the fast kernels take for the minima; the values say the same.
        """
        del sums  # the values say the same
        values = x.integers()
        experts = routes.experts.flatten().tolist()
        for pair, expert in enumerate(experts):
            weight = layouts.decode_q2(Q2(down.words[expert], down.minors[expert], down.scales[expert]))
            out[pair] = _row(values, pair, weight)
        out[len(experts) :] = linear(values[len(experts) :], layouts.decode_q8(shared))


def _row(values: Tensor, row: int, weight: Tensor) -> Tensor:
    return linear(values[row : row + 1], weight)[0]
