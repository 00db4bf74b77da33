"""A bar for long transfers: a line that moves on a terminal, elsewhere a line each tenth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 30
SHOWN_S = 0.1  # between two looks of the moving line


class Bar:
    """Progress of `total` bytes, told piece by piece; `now` gives seconds."""

    def __init__(
        self, what: str, total: int, stream: TextIO, *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._what, self._total, self._stream, self._now = what, total, stream, now
        self._began = self._shown = now()
        self._done = self._tenths = 0
        self._moves = stream.isatty()

    def add(self, nbytes: int) -> None:
        """So many bytes more."""
        self._done += nbytes
        now = self._now()
        whole = self._done >= self._total
        if self._moves:
            if whole or now - self._shown >= SHOWN_S:
                self._shown = now
                print(f"\r{self.line(now)}", end="\n" if whole else "", file=self._stream, flush=True)
        elif self._done * 10 // self._total > self._tenths:
            self._tenths = self._done * 10 // self._total
            print(self.line(now), file=self._stream, flush=True)

    def line(self, now: float) -> str:
        """What is shown at a time."""
        share = self._done / self._total
        seconds = max(now - self._began, 1e-9)
        rate = self._done / seconds
        left = (self._total - self._done) / rate if rate else 0.0
        full = round(WIDTH * share)
        return (
            f"{self._what} [{'#' * full}{'.' * (WIDTH - full)}] {self._done / 2**30:6.2f} of "
            f"{self._total / 2**30:.2f} GiB, {rate / 1e9:5.2f} GB/s, {left:3.0f} s left"
        )
