"""The half-filled window at the end of a sequence, and the whole window before it.

Turns a stream of per-token rows, cut anywhere, into whole windows.  Knows nothing of how a window is pooled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Frozen:
    """A frontier at one moment: rows of the window that is not full, and the last whole window if kept."""

    pending: Tensor  # [fill, width]
    last: Tensor | None  # [ratio, width]

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.pending.nbytes + (0 if self.last is None else self.last.nbytes)


class Frontier:
    """Collects rows [T, width] into windows of `ratio` tokens; keeps the last whole window if `overlap`."""

    __slots__ = ("_fill", "_overlap", "_pending", "last")

    def __init__(self, ratio: int, width: int, *, overlap: bool, start: Frozen | None = None) -> None:
        self._pending = torch.zeros(ratio, width)
        self._fill = 0
        self._overlap = overlap
        self.last: Tensor | None = None  # the newest whole window [ratio, width]
        if start is not None:
            self._fill = len(start.pending)
            self._pending[: self._fill] = start.pending
            self.last = start.last  # replaced as a whole, never written into

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self._pending.nbytes + (0 if self.last is None else self.last.nbytes)

    def push(self, rows: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Add the next tokens' rows; windows that close [n, ratio, width] and the one before if kept."""
        ratio = self._pending.shape[0]
        end = self._fill + rows.shape[0]
        if end < ratio:
            self._pending[self._fill : end] = rows
            self._fill = end
            return None
        whole = end // ratio
        joined = torch.cat((self._pending[: self._fill], rows)) if self._fill else rows
        windows = joined[: whole * ratio].view(whole, ratio, -1)
        self._fill = end - whole * ratio
        self._pending[: self._fill] = joined[whole * ratio :]
        before = self.last
        if self._overlap:
            self.last = windows[-1].clone()
        return windows, before

    def freeze(self) -> Frozen:
        """The present state, which further rows leave as it is."""
        return Frozen(self._pending[: self._fill].clone(), self.last)
