"""Where compressed rows lie: one slab a stream, cut into pages that sequences hold by number.

The memory of a slab is reserved at once and touched only where pages are used.  Knows nothing of what rows
mean, nor of who holds a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.cache.pages import BLANK, Ledger, PageTable


@dataclass(frozen=True, slots=True)
class StreamShape:
    """One stream of compressed rows: tokens a row, values collected a token, elements of a row."""

    ratio: int
    collected: int
    width: int
    dtype: torch.dtype
    overlap: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return self.width * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Slab:
    """Pages of one stream: [pages, rows a page, width], and the same rows flat."""

    pages: Tensor
    flat: Tensor

    @classmethod
    def reserve(cls, shape: StreamShape, *, pages: int, page_tokens: int) -> Slab:
        """Zeros that cost nothing until they are written."""
        rows = page_tokens // shape.ratio
        raw = torch.from_numpy(np.zeros((pages * rows, shape.row_bytes), np.uint8))  # calloc: not touched
        flat = raw.view(shape.dtype)
        return cls(flat.view(pages, rows, shape.width), flat)


class Pool:
    """The slabs of all streams, `budget` bytes together, and the ledger of their pages."""

    def __init__(
        self, streams: Sequence[StreamShape], *, window: int, budget: int, state_bytes: int = 0
    ) -> None:
        page_tokens = math.lcm(window, *(shape.ratio for shape in streams))
        page_bytes = sum(page_tokens // shape.ratio * shape.row_bytes for shape in streams)
        pages = budget // max(1, page_bytes)
        self.ledger = Ledger(
            pages=pages, page_tokens=page_tokens, page_bytes=page_bytes, state_bytes=state_bytes
        )
        self.slabs = [Slab.reserve(shape, pages=pages + 1, page_tokens=page_tokens) for shape in streams]

    def clear(self, pages: Sequence[int]) -> None:
        """Zero pages before a new holder reads them: rows behind the last one must be finite, and its own."""
        at = torch.tensor(pages)
        for slab in self.slabs:
            slab.pages.index_fill_(0, at, 0)

    def copy(self, source: int, target: int) -> None:
        """Copy one page."""
        for slab in self.slabs:
            slab.pages[target] = slab.pages[source]


class Pages:
    """The page table of one sequence, as kernels read it: page numbers by position, then blank pages.

    The table may grow beside it; `grow` brings the index up to date.
    """

    __slots__ = ("_known", "index", "pool", "table")

    def __init__(self, pool: Pool, table: PageTable, *, filled: int = 0) -> None:
        """The first `filled` pages of the table hold rows already; new ones are cleared."""
        self.pool = pool
        self.table = table
        self.index = torch.tensor([*table.pages[:filled], BLANK])
        self._known = filled

    def grow(self, tokens: int) -> None:
        """Make room for `tokens` tokens; raises CapacityError when the pool has no page left."""
        if self.table.needs(tokens):
            self.table.grow(tokens)
        fresh = self.table.pages[self._known :]
        if fresh:
            self.pool.clear(fresh)
            self.cover(len(self.table.pages))
            self.index[self._known : len(self.table.pages)] = torch.tensor(fresh)
            self._known = len(self.table.pages)

    def cover(self, count: int) -> None:
        """Fill the index up to at least `count` pages."""
        if count > len(self.index):
            longer = torch.full((count + count // 2,), BLANK)
            longer[: len(self.index)] = self.index
            self.index = longer

    def share(self, tokens: int) -> Pages:
        """The pages of the same first `tokens` tokens for another sequence, the half-filled one as a copy."""
        whole, rest = divmod(tokens, self.pool.ledger.page_tokens)
        table = self.table.share(whole)
        if rest:
            table.grow(tokens)
            self.pool.copy(self.table.pages[whole], table.pages[whole])
        return Pages(self.pool, table, filled=len(table.pages))


class Rows:
    """`count` rows of one stream of one sequence, spread over its pages.

    What lies behind the last row is arbitrary but stands for finite values: readers work on whole tiles and
    mask it.
    """

    __slots__ = ("_pages", "_slab", "count")

    def __init__(self, slab: Slab, pages: Pages, count: int = 0) -> None:
        self._slab = slab
        self._pages = pages
        self.count = count

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use."""
        return self.count * self._slab.flat.shape[1] * self._slab.flat.element_size()

    def append(self, rows: Tensor) -> None:
        """Add stored rows [n, width] at the end; the pages must have room."""
        if len(rows) == 1:
            page, place = divmod(self.count, self._slab.pages.shape[1])
            self._slab.pages[self._pages.table.pages[page], place] = rows[0]
        else:
            self._slab.flat.index_copy_(
                0, self._places(torch.arange(self.count, self.count + len(rows))), rows
            )
        self.count += len(rows)

    def read(self, start: int, size: int) -> Tensor:
        """Stored rows [size, width] from `start` on, past the last row too."""
        per_page = self._slab.pages.shape[1]
        first, last = start // per_page, -(-(start + size) // per_page)
        self._pages.cover(last)
        found = self._slab.pages.index_select(0, self._pages.index[first:last])
        return found.flatten(0, 1)[start - first * per_page :][:size]

    def pick(self, rows: Tensor) -> Tensor:
        """Stored rows [n, width] by number, int64 [n]."""
        return self._slab.flat.index_select(0, self._places(rows))

    def _places(self, rows: Tensor) -> Tensor:
        """Where rows lie in the flat slab; none may be beyond the index."""
        per_page = self._slab.pages.shape[1]
        return self._pages.index[rows.div(per_page, rounding_mode="floor")] * per_page + rows % per_page
