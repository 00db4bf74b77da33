"""What one forward pass works on: rows of several sequences side by side.  Holds no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

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
