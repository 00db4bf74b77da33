"""Rows in pages that copies of a sequence share."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache.pages import PageTable
from engine.cache.store import Pages, Pool, Rows, StreamShape
from engine.errors import CapacityError

SHAPES = [
    StreamShape(ratio=2, collected=1, width=3, dtype=torch.float32, overlap=False),
    StreamShape(ratio=4, collected=1, width=5, dtype=torch.uint8, overlap=False),
]
PAGE_TOKENS, PAGE_BYTES, PAGES = 8, 4 * 12 + 2 * 5, 12


class Copy:
    """One sequence of numbered tokens: every stream's row is the number of its last token."""

    def __init__(self, pool: Pool, pages: Pages, tokens: list[int]) -> None:
        self.pages, self.tokens = pages, tokens
        self.rows = [
            Rows(slab, pages, len(tokens) // shape.ratio)
            for slab, shape in zip(pool.slabs, SHAPES, strict=True)
        ]

    def wanted(self, shape: StreamShape) -> list[int]:
        return self.tokens[shape.ratio - 1 :: shape.ratio]

    def append(self, tokens: list[int]) -> None:
        self.pages.grow(len(self.tokens) + len(tokens))
        self.tokens = self.tokens + tokens
        for rows, shape in zip(self.rows, SHAPES, strict=True):
            fresh = torch.tensor(self.wanted(shape)[rows.count :], dtype=shape.dtype)
            if len(fresh):
                rows.append(fresh.unsqueeze(1).expand(-1, shape.width))


class RowsMachine(RuleBasedStateMachine):
    """Any interleaving of growth, copies and ends leaves every copy with exactly its own rows."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(SHAPES, window=8, budget=PAGES * PAGE_BYTES)
        self.copies = [Copy(self.pool, Pages(self.pool, PageTable(self.pool.ledger)), [])]
        self.next = 0

    @rule(which=st.integers(0, 99), count=st.integers(1, 19))
    def append(self, which: int, count: int) -> None:
        copy = self.copies[which % len(self.copies)]
        before = list(copy.pages.table.pages)
        try:
            copy.append([(self.next + step) % 251 for step in range(count)])
        except CapacityError:
            assert before == copy.pages.table.pages
        self.next += count

    @rule(which=st.integers(0, 99), share=st.floats(0, 1))
    def fork(self, which: int, share: float) -> None:
        source = self.copies[which % len(self.copies)]
        length = int(share * len(source.tokens))
        if len(self.copies) < 6:
            try:
                pages = source.pages.share(length)
            except CapacityError:
                assert not self.pool.ledger.free
                return
            self.copies.append(Copy(self.pool, pages, source.tokens[:length]))

    @rule(which=st.integers(0, 99))
    def end(self, which: int) -> None:
        if len(self.copies) > 1:
            self.copies.pop(which % len(self.copies)).pages.table.close()

    @invariant()
    def every_copy_holds_its_rows(self) -> None:
        self.pool.ledger.check(copy.pages.table for copy in self.copies)
        for copy in self.copies:
            for rows, shape in zip(copy.rows, SHAPES, strict=True):
                wanted = copy.wanted(shape)
                beyond = rows.read(0, rows.count + 7)

                assert wanted == beyond[: rows.count, 0].tolist()
                assert wanted[::-1] == rows.pick(torch.arange(rows.count).flip(0))[:, -1].tolist()
                assert wanted[1:3] == rows.read(1, 2)[: max(0, rows.count - 1), 0].tolist()


TestRows = RowsMachine.TestCase
TestRows.settings = settings(max_examples=50, stateful_step_count=30)


def test_a_page_covers_whole_rows_of_every_stream_and_whole_windows() -> None:
    pool = Pool(SHAPES, window=6, budget=10_000)

    assert 12 == pool.ledger.page_tokens
    assert 6 * 12 + 3 * 5 == pool.ledger.page_bytes
    assert 10_000 // pool.ledger.page_bytes == pool.ledger.pages


def test_what_a_page_held_before_is_not_seen_by_its_next_holder() -> None:
    pool = Pool(SHAPES, window=8, budget=PAGE_BYTES)
    first = Copy(pool, Pages(pool, PageTable(pool.ledger)), [])
    first.append([9] * 8)
    pool.slabs[0].flat.fill_(float("nan"))
    first.pages.table.close()
    second = Copy(pool, Pages(pool, PageTable(pool.ledger)), [])
    second.append([1, 2])

    assert [2, 0, 0, 0] == second.rows[0].read(0, 4)[:, 0].tolist()


def test_pages_of_a_forgotten_sequence_come_back() -> None:
    pool = Pool(SHAPES, window=8, budget=2 * PAGE_BYTES)
    pages = Pages(pool, PageTable(pool.ledger))
    pages.grow(16)
    with pytest.raises(CapacityError, match="1 more pages of 8 tokens are needed and 0 are free"):
        Pages(pool, PageTable(pool.ledger)).grow(1)
    del pages

    assert 2 == pool.ledger.free
