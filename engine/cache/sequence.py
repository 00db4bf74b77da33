"""Everything a sequence keeps between steps: per layer the raw window, compressed rows and frontiers.

Three kinds of state: the raw window is a ring, compressed rows are append-only and shared between copies,
the frontier is what a window has collected so far.  Knows nothing of the model's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.frontier import Frontier
from engine.cache.store import Rows


@dataclass(frozen=True, slots=True)
class StreamShape:
    """One stream of compressed rows: tokens a row, values collected a token, elements a row, rows a tile."""

    ratio: int
    collected: int
    width: int
    dtype: torch.dtype
    tile: int
    overlap: bool


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of one layer's cache: the window, the elements of a row, and its compressed streams."""

    window: int
    width: int
    dtype: torch.dtype
    main: StreamShape | None
    index: StreamShape | None


@dataclass(frozen=True, slots=True)
class Stream:
    """Compressed rows and the frontier that they grow from."""

    rows: Rows
    frontier: Frontier

    @classmethod
    def empty(cls, shape: StreamShape) -> Stream:
        """No rows yet."""
        rows = Rows(shape.width, shape.dtype, tile=shape.tile)
        return cls(rows, Frontier(shape.ratio, shape.collected, overlap=shape.overlap))

    def clone(self) -> Stream:
        """A copy that shares the rows."""
        return Stream(self.rows.fork(), self.frontier.clone())


@dataclass(frozen=True, slots=True)
class LayerCache:
    """State of one layer; the row of position p lies in `ring[p % window]`."""

    ring: Tensor  # [window, width]
    main: Stream | None
    index: Stream | None

    @classmethod
    def empty(cls, shape: LayerShape) -> LayerCache:
        """Nothing seen yet."""
        main = Stream.empty(shape.main) if shape.main else None
        index = Stream.empty(shape.index) if shape.index else None
        return cls(torch.zeros(shape.window, shape.width, dtype=shape.dtype), main, index)

    def clone(self) -> LayerCache:
        """A copy that shares the compressed rows."""
        main = self.main.clone() if self.main else None
        index = self.index.clone() if self.index else None
        return LayerCache(self.ring.clone(), main, index)

    def streams(self) -> list[Stream]:
        """The compressed streams that this layer has."""
        return [stream for stream in (self.main, self.index) if stream]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A sequence frozen at `length` tokens; cheap, because compressed rows are shared."""

    length: int
    layers: tuple[LayerCache, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that this snapshot holds for itself alone: windows and frontiers."""
        return sum(
            layer.ring.nbytes + sum(stream.frontier.nbytes for stream in layer.streams())
            for layer in self.layers
        )


class SequenceCache:
    """The live state of one sequence of `length` tokens."""

    __slots__ = ("layers", "length")

    def __init__(self, shapes: Sequence[LayerShape]) -> None:
        self.length = 0
        self.layers = tuple(LayerCache.empty(shape) for shape in shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in use, windows and frontiers."""
        rows = sum(stream.rows.nbytes for layer in self.layers for stream in layer.streams())
        return rows + Snapshot(self.length, self.layers).nbytes

    def clone(self) -> SequenceCache:
        """An independent sequence with the same past."""
        twin = SequenceCache(())
        twin.restore(self.snapshot())
        return twin

    def snapshot(self) -> Snapshot:
        """Freeze the present state; further steps leave the snapshot as it is."""
        return Snapshot(self.length, tuple(layer.clone() for layer in self.layers))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a frozen state, any number of times; it may come from another sequence."""
        self.length = snapshot.length
        self.layers = tuple(layer.clone() for layer in snapshot.layers)
