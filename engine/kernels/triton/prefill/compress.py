"""Pooling of a chunk's tokens into compressed rows, and the state that the next token goes on from.

A window may begin in the state that earlier calls left (docs/model.md, 5).
Twins: `engine.kernels.ref.compress` and `engine.cache.frontier`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

SLOTS = 8  # tokens looked at at a time


@dataclass(frozen=True, slots=True)
class State:
    """What a compressor keeps between calls, float32 [co r, co d] each: token t in slot t mod (co r).

    co is 2 where windows overlap, else 1.  Scores include the bias of the position within the window.
    """

    keys: Tensor
    scores: Tensor


@dataclass(frozen=True, slots=True)
class Tokens:
    """A chunk's projections: keys and scores float32 [T, co d] (strided), the first at position `first`."""

    keys: Tensor
    scores: Tensor
    ape: Tensor  # [r, co d], added to scores
    first: int

    @property
    def ratio(self) -> int:
        """Tokens of a window."""
        return self.ape.shape[0]

    @property
    def end(self) -> int:
        """Position behind the last token."""
        return self.first + len(self.keys)

    @property
    def rows(self) -> range:
        """Rows that this chunk completes."""
        return range(self.first // self.ratio, self.end // self.ratio)


@triton.jit
def _take(
    chunk, state, position, first, stride, channel, mask,
    slots: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Values of tokens by position, from the chunk or from the state; zero where masked."""
    line = (position - first).to(tl.int64)
    fresh = tl.load(chunk + line * stride + channel, mask=mask & (position >= first), other=0.0)
    old = tl.load(state + position % slots * width + channel, mask=mask & (position < first), other=0.0)
    return tl.where(position >= first, fresh, old)


@triton.jit
def _pool(
    keys, scores, ape, old_keys, old_scores, out, first, stride,
    ratio: tl.constexpr, slots: tl.constexpr, depth: tl.constexpr, overlap: tl.constexpr, step: tl.constexpr,
    pad: tl.constexpr,
):  # fmt: skip
    row = first // ratio + tl.program_id(0)
    span: tl.constexpr = 2 * ratio if overlap else ratio
    width: tl.constexpr = 2 * depth if overlap else depth
    begin = (row + 1) * ratio - span
    column = tl.arange(0, pad)
    here = (column < depth)[None, :]
    peak = tl.full((pad,), -1e30, tl.float32)
    total = tl.zeros((pad,), tl.float32)
    sums = tl.zeros((pad,), tl.float32)
    for start in range(0, span, step):
        slot = start + tl.arange(0, step)
        position = (begin + slot)[:, None]
        channel = column[None, :]
        if overlap:
            channel = channel + tl.where(slot >= ratio, depth, 0)[:, None]
        mask = here & ((slot < span)[:, None] & (position >= 0))
        key = _take(keys, old_keys, position, first, stride, channel, mask, slots, width)
        score = _take(scores, old_scores, position, first, stride, channel, mask, slots, width)
        place = tl.load(ape + (slot % ratio)[:, None] * width + channel, mask=mask, other=0.0).to(tl.float32)
        score = tl.where(mask, score + tl.where(position >= first, place, 0.0), -1e30)
        top = tl.maximum(peak, tl.max(score, 0))
        weight = tl.where(mask, tl.exp(score - top[None, :]), 0.0)
        fade = tl.exp(peak - top)
        total = total * fade + tl.sum(weight, 0)
        sums = sums * fade + tl.sum(weight * key, 0)
        peak = top
    tl.store(
        out + tl.program_id(0).to(tl.int64) * depth + column,
        sums / tl.maximum(total, 1.0),
        mask=column < depth,
    )


@triton.jit
def _keep(
    keys, scores, ape, new_keys, new_scores, first, begin, stride,
    ratio: tl.constexpr, slots: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    position = begin + tl.program_id(0)
    channel = tl.program_id(1) * block + tl.arange(0, block)
    here = channel < width
    at = (position - first).to(tl.int64) * stride + channel
    place = tl.load(ape + position % ratio * width + channel, mask=here, other=0.0)
    to = position % slots * width + channel
    tl.store(new_keys + to, tl.load(keys + at, mask=here, other=0.0), mask=here)
    tl.store(new_scores + to, tl.load(scores + at, mask=here, other=0.0) + place, mask=here)


def pool(tokens: Tokens, state: State) -> Tensor:
    """Pooled rows [n, d] float32 of the windows that the chunk completes; 1e-5 relative to the twin."""
    slots, width = state.keys.shape
    overlap = slots > tokens.ratio
    depth = width // 2 if overlap else width
    out = torch.empty(len(tokens.rows), depth, device=tokens.keys.device)
    if len(out):
        _pool[(len(out),)](
            tokens.keys, tokens.scores, tokens.ape, state.keys, state.scores, out, tokens.first,
            tokens.keys.stride(0), tokens.ratio, slots, depth, overlap, SLOTS, triton.next_power_of_2(depth),
        )  # fmt: skip
    return out


def keep(tokens: Tokens, state: State) -> None:
    """Add the chunk's last tokens to the state; exact."""
    slots, width = state.keys.shape
    count = min(slots, tokens.end - tokens.first)
    block = min(512, triton.next_power_of_2(width))
    _keep[(count, triton.cdiv(width, block))](
        tokens.keys, tokens.scores, tokens.ape, state.keys, state.scores, tokens.first, tokens.end - count,
        tokens.keys.stride(0), tokens.ratio, slots, width, block,
    )  # fmt: skip
