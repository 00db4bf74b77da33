"""What one forward pass works on: rows of several sequences side by side.  Holds no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.sequence import SequenceCache
from engine.model.ops import Rotation


@dataclass(frozen=True, slots=True)
class Span:
    """Rows start..stop of the step are the next tokens of one sequence; the first has `position`."""

    cache: SequenceCache
    start: int
    stop: int
    position: int

    @property
    def end(self) -> int:
        """Tokens of the sequence once this span is done."""
        return self.position + self.stop - self.start


@dataclass(frozen=True, slots=True)
class Step:
    """`rows` real rows, filled up with idle ones to a whole row block; `ids` and rotations cover them all."""

    rows: int
    ids: Tensor  # int64 [T]
    plain: Rotation
    scaled: Rotation
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """How many compressed rows each query of a piece may see: closed windows up to its own position."""

    least: int
    most: int
    each: Tensor  # int64 [T]

    @classmethod
    def at(cls, position: int, count: int, ratio: int) -> Closed:
        """For `count` queries from `position` on."""
        ends = torch.arange(position + 1, position + count + 1)
        return cls(
            (position + 1) // ratio, (position + count) // ratio, ends.div_(ratio, rounding_mode="floor")
        )
