"""Append-only rows of one layer of one sequence, shared between copies of the sequence.

Rows are never modified once written, so a copy costs nothing: both sides keep one buffer, and only the
first to append writes into it; the other moves to a buffer of its own.  Knows nothing of what rows mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class _Buffer:
    """Storage behind one or more `Rows`; `filled` rows belong to somebody."""

    data: Tensor  # [capacity, width], zeros where nobody wrote
    filled: int


class Rows:
    """`count` rows of `width` elements in a buffer whose length is always a multiple of `tile` rows.

    What lies behind the last row is arbitrary but stands for finite values: readers work on whole tiles and
    mask it.
    """

    __slots__ = ("_buffer", "_tile", "count")

    def __init__(self, width: int, dtype: torch.dtype, *, tile: int) -> None:
        self._tile = tile
        self._buffer = _Buffer(torch.zeros(tile, width, dtype=dtype), 0)
        self.count = 0

    @property
    def data(self) -> Tensor:
        """The whole buffer [capacity, width]."""
        return self._buffer.data

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use."""
        return self.count * self.data.shape[1] * self.data.element_size()

    def append(self, rows: Tensor) -> None:
        """Add stored rows [n, width] at the end."""
        end = self.count + rows.shape[0]
        if self._buffer.filled != self.count or end > self.data.shape[0]:
            self._move(end)
        self.data[self.count : end] = rows
        self.count = self._buffer.filled = end

    def fork(self) -> Rows:
        """A second owner of the same rows."""
        twin = Rows.__new__(Rows)
        twin._tile, twin._buffer, twin.count = self._tile, self._buffer, self.count
        return twin

    def _move(self, end: int) -> None:
        """Take a buffer of our own with room for `end` rows and half as many again."""
        tiles = -(-(end + end // 2) // self._tile)
        data = torch.zeros(tiles * self._tile, self.data.shape[1], dtype=self.data.dtype)
        data[: self.count] = self.data[: self.count]
        self._buffer = _Buffer(data, self.count)
