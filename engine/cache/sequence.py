"""Everything a sequence keeps between steps: per layer the raw window, compressed rows and frontiers.

Three kinds of state: the raw window is a ring, compressed rows lie in pages that sequences with the same
past share, the frontier is what a window has collected so far.  Knows nothing of the model's arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.cache.frontier import Frontier, Frozen
from engine.cache.pages import PageTable
from engine.cache.store import Pages, Pool, Rows, Slab, StreamShape
from engine.cache.view import ROWS


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of one layer's cache: the window, the elements of a row, and its compressed streams."""

    window: int
    width: int
    dtype: torch.dtype
    main: StreamShape | None
    index: StreamShape | None

    def streams(self) -> list[StreamShape]:
        """The compressed streams that this layer has."""
        return [shape for shape in (self.main, self.index) if shape]


@dataclass(frozen=True, slots=True)
class Stream:
    """Compressed rows and the frontier that they grow from."""

    rows: Rows
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class LayerCache:
    """State of one layer; the row of position p lies in `ring[p % window]`."""

    ring: Tensor  # [window, width]
    main: Stream | None
    index: Stream | None

    def streams(self) -> list[Stream]:
        """The compressed streams that this layer has."""
        return [stream for stream in (self.main, self.index) if stream]


@dataclass(frozen=True, slots=True)
class FrozenLayer:
    """What of a layer cannot be found again in its pages: the window, and a frontier a stream."""

    ring: Tensor
    frontiers: tuple[Frozen, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return self.ring.nbytes + sum(frontier.nbytes for frontier in self.frontiers)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A sequence frozen at `length` tokens; cheap, because its rows stay in the pages of its sequence."""

    length: int
    layers: tuple[FrozenLayer, ...]
    pages: Pages

    @property
    def nbytes(self) -> int:
        """Bytes that this snapshot holds for itself alone: windows and frontiers."""
        return sum(layer.nbytes for layer in self.layers)


def new_pool(shapes: Sequence[LayerShape], budget: int) -> Pool:
    """The pages of all sequences of a model, `budget` bytes together; a page is a whole number of windows."""
    streams = [stream for shape in shapes for stream in shape.streams()]
    rings = sum(shape.window * shape.width * shape.dtype.itemsize for shape in shapes)
    frontiers = sum(4 * (1 + stream.overlap) * stream.ratio * stream.collected for stream in streams)
    window = math.lcm(*(shape.window for shape in shapes))
    return Pool(streams, window=window, budget=budget, state_bytes=rings + frontiers)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Raise MemoryError where torch lacks memory; of that of a CPU only the text of its error tells."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        raise


class SequenceCache:
    """The live state of one sequence of `length` tokens.

    What writes works in inference mode, as steps do, so that either may go on where the other has written.
    """

    __slots__ = ("_pool", "_shapes", "layers", "length", "pages")

    @_memory_errors()
    def __init__(self, shapes: Sequence[LayerShape], pool: Pool, table: PageTable | None = None) -> None:
        """Over a page table that somebody else looks after, or over one of its own."""
        self._shapes, self._pool = shapes, pool
        self.length = 0
        self.pages = Pages(pool, table or PageTable(pool.ledger))
        self.layers = tuple(_empty(shape, slabs, self.pages) for shape, slabs in self._by_layer())

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in use, windows and frontiers."""
        rows = sum(stream.rows.nbytes for stream in self._streams())
        return rows + self.own_bytes

    @property
    def own_bytes(self) -> int:
        """Bytes outside the pages: windows and frontiers."""
        return sum(
            layer.ring.nbytes + sum(stream.frontier.nbytes for stream in layer.streams())
            for layer in self.layers
        )

    @torch.inference_mode()
    def grow(self, tokens: int) -> None:
        """Take the pages for `tokens` tokens in all; raises CapacityError, and takes none, if they lack."""
        self.pages.grow(tokens)

    def clone(self) -> SequenceCache:
        """An independent sequence with the same past."""
        twin = SequenceCache(self._shapes, self._pool)
        twin.restore(self.snapshot())
        return twin

    def snapshot(self) -> Snapshot:
        """Freeze the present state; further steps leave the snapshot as it is."""
        layers = tuple(
            FrozenLayer(layer.ring.clone(), tuple(stream.frontier.freeze() for stream in layer.streams()))
            for layer in self.layers
        )
        return Snapshot(self.length, layers, self.pages)

    @_memory_errors()
    def arrays(self, anchors: Mapping[int, Snapshot]) -> dict[str, NDArray[Any]]:
        """Everything that `fill` needs: rows in use, windows and frontiers at the anchors and at the end."""
        found = {
            f"{ROWS}{number}": stream.rows.read(0, stream.rows.count).numpy()
            for number, stream in enumerate(self._streams())
        }
        for snapshot in (*anchors.values(), self.snapshot()):
            for name, tensor in _named(snapshot):
                found[name] = tensor.numpy()
        return found

    @_memory_errors()
    @torch.inference_mode()
    def fill(self, length: int, anchors: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> dict[int, Any]:
        """Become what `arrays` came from, over a table that has its pages; its snapshots by position.

        ValueError or KeyError, before anything is written, when the arrays do not fit this model.
        """
        found = {at: self._frozen(at, arrays) for at in (*anchors, length)}
        shapes = [shape for layer in self._shapes for shape in layer.streams()]
        rows = [
            _fitting(arrays, f"{ROWS}{number}", (length // shape.ratio, shape.width), shape.dtype)
            for number, shape in enumerate(shapes)
        ]
        self.grow(length)
        self._continue(found[length], self.pages)
        for stream, stored in zip(self._streams(), rows, strict=True):
            stream.rows.count = 0
            if len(stored):
                stream.rows.append(stored)
        return {at: found[at] for at in anchors}

    @torch.inference_mode()
    def restore(self, snapshot: Snapshot) -> None:
        """Return to a frozen state, any number of times; it may come from another sequence.

        Takes at most one page, for a copy of a half-filled one; raises CapacityError when there is none.
        """
        self._continue(snapshot, snapshot.pages.share(snapshot.length))

    @torch.inference_mode()
    def resume(self, snapshot: Snapshot, copied: tuple[int, int] | None) -> None:
        """Begin where another sequence was frozen, over the given table, which shares its full pages.

        `copied`: the page that was half full there, and this sequence's own page for it.
        """
        if copied is not None:
            self._pool.copy(*copied)
        filled = -(-snapshot.length // self._pool.ledger.page_tokens)
        self._continue(snapshot, Pages(self._pool, self.pages.table, filled=filled))

    def _continue(self, snapshot: Snapshot, pages: Pages) -> None:
        self.pages, self.length = pages, snapshot.length
        self.layers = tuple(
            _thawed(shape, slabs, self.pages, frozen, self.length)
            for (shape, slabs), frozen in zip(self._by_layer(), snapshot.layers, strict=True)
        )

    def _streams(self) -> list[Stream]:
        return [stream for layer in self.layers for stream in layer.streams()]

    def _frozen(self, length: int, arrays: Mapping[str, NDArray[Any]]) -> Snapshot:
        """The state at a position, out of named arrays."""
        layers = []
        for number, shape in enumerate(self._shapes):
            at = f"{length}.{number}."
            ring = _fitting(arrays, f"{at}ring", (shape.window, shape.width), shape.dtype)
            frontiers = [
                _thawed_frontier(f"{at}{stream}.", stream_shape, length, arrays)
                for stream, stream_shape in enumerate(shape.streams())
            ]
            layers.append(FrozenLayer(ring, tuple(frontiers)))
        return Snapshot(length, tuple(layers), self.pages)

    def _by_layer(self) -> Iterator[tuple[LayerShape, list[Slab]]]:
        """Each layer's shape and the slabs of its streams."""
        slabs = iter(self._pool.slabs)
        for shape in self._shapes:
            yield shape, [next(slabs) for _ in shape.streams()]


def _named(snapshot: Snapshot) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a snapshot, by names that say position, layer and stream."""
    for number, layer in enumerate(snapshot.layers):
        at = f"{snapshot.length}.{number}."
        yield f"{at}ring", layer.ring
        for stream, frozen in enumerate(layer.frontiers):
            yield f"{at}{stream}.pending", frozen.pending
            if frozen.last is not None:
                yield f"{at}{stream}.last", frozen.last


def _thawed_frontier(at: str, shape: StreamShape, length: int, arrays: Mapping[str, NDArray[Any]]) -> Frozen:
    """What a stream had collected at a position; names begin with `at`."""
    fill, width = length % shape.ratio, shape.collected
    pending = _fitting(arrays, f"{at}pending", (fill, width), torch.float32)
    if not shape.overlap or length < shape.ratio:
        return Frozen(pending, None)
    return Frozen(pending, _fitting(arrays, f"{at}last", (shape.ratio, width), torch.float32))


def _fitting(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """An array as a tensor; ValueError when it is another one than it should be."""
    found = torch.from_numpy(arrays[name])
    if (tuple(found.shape), found.dtype) != (shape, dtype):
        raise ValueError(f"{name} is {tuple(found.shape)} of {found.dtype}, not {shape} of {dtype}")
    return found


def _empty(shape: LayerShape, slabs: Sequence[Slab], pages: Pages) -> LayerCache:
    """Nothing seen yet."""
    frontiers = tuple(Frozen(torch.zeros(0, stream.collected), None) for stream in shape.streams())
    ring = torch.zeros(shape.window, shape.width, dtype=shape.dtype)
    return _thawed(shape, slabs, pages, FrozenLayer(ring, frontiers), 0)


def _thawed(
    shape: LayerShape, slabs: Sequence[Slab], pages: Pages, frozen: FrozenLayer, length: int
) -> LayerCache:
    """A live layer that continues a frozen one."""
    streams: list[Stream | None] = [
        Stream(
            Rows(slab, pages, length // stream.ratio),
            Frontier(stream.ratio, stream.collected, overlap=stream.overlap, start=start),
        )
        for stream, slab, start in zip(shape.streams(), slabs, frozen.frontiers, strict=True)
    ]
    main, index = [*streams, None, None][:2]
    return LayerCache(frozen.ring.clone(), main, index)
