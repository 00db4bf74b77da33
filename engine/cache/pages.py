"""Pages: who holds which part of a fixed pool of cache rows.

A page is the compressed rows of `page_tokens` tokens in every layer at once.  Rows are append-only and a
position's rows never change, so sequences with the same past hold the same pages; only the last page of a
copy, when it is half filled, is a page of its own.  Counts only: rows lie in `engine.cache.store`.  No torch.
"""

from __future__ import annotations

import weakref
from array import array
from collections import Counter
from collections.abc import Iterable

from engine.errors import CapacityError

BLANK = 0  # a page of zeros that belongs to nobody: what tables are filled up with


class Ledger:
    """The holders of each page of a pool; `page_bytes` are those of all layers together.

    `state_bytes` is the most that a sequence, live or frozen, holds besides its pages.

    Pages are taken when they are needed, never before, and the last one released is the next one taken, so
    that memory which was never needed is never touched.
    """

    def __init__(self, *, pages: int, page_tokens: int, page_bytes: int, state_bytes: int = 0) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self.page_bytes = page_bytes
        self.state_bytes = state_bytes
        self._holders = array("l", bytes(array("l").itemsize))  # by page; the blank page has none
        self._released: list[int] = []

    @property
    def used(self) -> int:
        """Pages that somebody holds."""
        return len(self._holders) - 1 - len(self._released)

    @property
    def free(self) -> int:
        """Pages that can be taken."""
        return self.pages - self.used

    def holders(self, page: int) -> int:
        """How many tables hold a page."""
        return self._holders[page]

    def take(self) -> int:
        """A page that nobody held; raises CapacityError when there is none."""
        if not self.free:
            raise CapacityError(f"all {self.pages} pages of the cache are held; try again soon")
        if self._released:
            page = self._released.pop()
        else:
            page = len(self._holders)
            self._holders.append(0)
        self._holders[page] = 1
        return page

    def share(self, pages: Iterable[int]) -> None:
        """One more holder for each page."""
        for page in pages:
            assert self._holders[page] > 0, page
            self._holders[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """One holder less for each page; those that lose the last one are free."""
        for page in pages:
            assert self._holders[page] > 0, page
            self._holders[page] -= 1
            if not self._holders[page]:
                self._released.append(page)

    def check(self, tables: Iterable[PageTable]) -> None:
        """Raise AssertionError unless the counts are those of exactly these tables."""
        counted = Counter(page for table in tables for page in table.pages)
        held = {page: count for page, count in enumerate(self._holders) if count}
        assert held == dict(counted), (held, counted)
        assert BLANK not in held
        assert sorted(self._released) == [
            page for page, count in enumerate(self._holders) if page != BLANK and not count
        ]
        assert 0 <= self.used <= self.pages, (self.used, self.pages)


class PageTable:
    """The pages of one sequence, in order of position.  Held until `close`, or until the table is garbage."""

    __slots__ = ("__weakref__", "_finalizer", "ledger", "pages")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.pages: list[int] = []
        self._finalizer = weakref.finalize(self, ledger.release, self.pages)
        self._finalizer.atexit = False

    def needs(self, tokens: int) -> int:
        """Pages that must be taken before `tokens` tokens fit."""
        return max(0, -(-tokens // self.ledger.page_tokens) - len(self.pages))

    def grow(self, tokens: int) -> list[int]:
        """Make room for `tokens` tokens; the pages taken.  On CapacityError none is."""
        count = self.needs(tokens)
        if count > self.ledger.free:
            raise CapacityError(
                f"{count} more pages of {self.ledger.page_tokens} tokens are needed "
                f"and {self.ledger.free} are free; try again soon"
            )
        fresh = [self.ledger.take() for _ in range(count)]
        self.pages += fresh
        return fresh

    def share(self, pages: int) -> PageTable:
        """A table of the same first pages, which must be full: nobody writes into a shared page."""
        twin = PageTable(self.ledger)
        self.ledger.share(self.pages[:pages])
        twin.pages += self.pages[:pages]
        return twin

    def close(self) -> None:
        """Give all pages back; the table is empty then."""
        self.ledger.release(self.pages)
        self.pages.clear()
