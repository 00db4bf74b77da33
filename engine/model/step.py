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
    """How many compressed rows of `ratio` tokens each of `count` queries from `position` on may see.

    Those are the windows closed up to a query's own position.
    """

    position: int
    count: int
    ratio: int

    @property
    def least(self) -> int:
        """What the first query sees."""
        return (self.position + 1) // self.ratio

    @property
    def most(self) -> int:
        """What the last query sees."""
        return (self.position + self.count) // self.ratio

    @property
    def each(self) -> Tensor:
        """What every query sees, int64 [T]."""
        ends = torch.arange(self.position + 1, self.position + self.count + 1)
        return ends.div_(self.ratio, rounding_mode="floor")
