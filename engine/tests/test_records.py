"""Kept sequences: which one serves a prompt, and which one goes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache.pages import Ledger, PageTable
from engine.scheduler.records import Record, Records, best_place, thinned
from engine.tests.fake_pages import ledger

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=20).map(tuple)
TENANTS = st.sampled_from(["one", "two"])


def ids(tokens: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.asarray(tokens, np.int32)


def new(
    pages: Ledger,
    tokens: tuple[int, ...],
    *,
    anchors: tuple[int, ...] = (),
    tenant: str = "",
    pinned: bool = False,
) -> Record:
    """A record of some tokens with pages of its own."""
    table = PageTable(pages)
    table.grow(len(tokens))
    return Record(0, tenant, ids(tokens), anchors, table, own_bytes=10, wish=None, pinned=pinned)


class RecordsMachine(RuleBasedStateMachine):
    """Mirrors the records with a plain dictionary of what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = ledger(page_tokens=4)
        self.records = Records(max_count=4, max_pinned_bytes=60)
        self.kept: dict[int, tuple[str, tuple[int, ...], frozenset[int]]] = {}

    @rule(tokens=TOKENS, places=st.sets(st.integers(1, 20)), tenant=TENANTS, pinned=st.booleans())
    def keep(self, tokens: tuple[int, ...], places: set[int], tenant: str, pinned: bool) -> None:
        anchors = tuple(sorted(place for place in places if place < len(tokens)))
        kept = self.records.keep(new(self.ledger, tokens, anchors=anchors, tenant=tenant, pinned=pinned))
        self.kept[kept.record.id] = (tenant, tokens, frozenset(kept.record.places))
        for old in (*kept.replaced, *kept.excess):
            old.table.close()
            del self.kept[old.id]

    @rule(prompt=TOKENS, tenant=TENANTS)
    def find(self, prompt: tuple[int, ...], tenant: str) -> None:
        best = max(
            (
                place
                for owner, tokens, places in self.kept.values()
                for place in places
                if owner == tenant and place < len(prompt) and tokens[:place] == prompt[:place]
            ),
            default=0,
        )
        found = self.records.find(tenant, ids(prompt))

        assert best == (found[1] if found else 0)
        if found is not None:
            assert found[1] in self.kept[found[0].id][2]
            assert tenant == found[0].tenant

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        if self.kept:
            record_id = data.draw(st.sampled_from(sorted(self.kept)))
            taken = self.records.take(record_id)

            assert self.kept.pop(record_id)[1] == tuple(taken.tokens)
            taken.table.close()

    @rule(nbytes=st.integers(1, 200))
    def one_yields(self, nbytes: int) -> None:
        unpinned = {record.id for record in self.records.values() if not record.pinned}
        gone = self.records.yields(nbytes)

        assert (gone is None) == (not self.kept)
        if gone is not None:
            assert gone.id in unpinned or not unpinned
            gone.table.close()
            del self.kept[gone.id]

    @invariant()
    def limits_hold(self) -> None:
        self.records.check()
        self.ledger.check(record.table for record in self.records.values())
        assert set(self.kept) == {record.id for record in self.records.values()}


RecordsMachine.TestCase.settings = settings(max_examples=60, deadline=None)
TestRecords = RecordsMachine.TestCase


def test_the_least_recently_used_record_goes_first() -> None:
    pages = ledger()
    records = Records(max_count=2, max_pinned_bytes=0)
    records.keep(new(pages, (1, 1)))
    second = records.keep(new(pages, (2, 2))).record
    records.find("", ids((1, 1, 5)))
    kept = records.keep(new(pages, (3, 3)))

    assert [second.id] == [record.id for record in kept.excess]


def test_a_record_that_a_longer_one_replaces_goes_at_once() -> None:
    pages = ledger()
    records = Records(max_count=9, max_pinned_bytes=0)
    short = records.keep(new(pages, (1, 2), anchors=(1,))).record
    records.keep(new(pages, (1, 2), anchors=(1,), tenant="another"))
    kept = records.keep(new(pages, (1, 2, 3), anchors=(1, 2)))

    assert [short.id] == [record.id for record in kept.replaced]
    assert () == kept.excess


@pytest.mark.parametrize(("nbytes", "first"), [(1, 1), (30, 2), (60, 0), (500, 0)])
def test_the_smallest_that_is_enough_goes_instead_of_a_huge_old_one(nbytes: int, first: int) -> None:
    pages = ledger()
    records = Records(max_count=9, max_pinned_bytes=0)
    kept = [
        records.keep(new(pages, (value,) * length)).record.id for value, length in ((1, 90), (2, 9), (3, 30))
    ]
    gone = records.yields(nbytes)

    assert gone is not None
    assert kept[first] == gone.id


def test_a_spared_record_does_not_yield_even_when_it_is_the_only_one() -> None:
    records = Records(max_count=9, max_pinned_bytes=0)
    only = records.keep(new(ledger(), (1,) * 9)).record

    assert records.yields(1, spared=only.id) is None
    assert only.id == getattr(records.yields(1), "id", None)


def test_pinned_records_beyond_their_share_lose_the_oldest_pin() -> None:
    pages = ledger()
    records = Records(max_count=9, max_pinned_bytes=60)
    kept = [records.keep(new(pages, (value,) * 16, pinned=True)).record.id for value in range(3)]

    assert [False, True, True] == [records.get(number).pinned for number in kept]


def test_equal_hashes_do_not_make_prompts_equal() -> None:
    assert 0 == best_place(ids((-2, 5, 6)), ids((-1, 5)), (2,))  # in CPython hash(-1) == hash(-2)


@given(places=st.sets(st.integers(1, 1000), max_size=30), most=st.integers(1, 20))
def test_thinning_keeps_the_newest_two_and_covers_the_rest_evenly(places: set[int], most: int) -> None:
    kept = thinned(places, most)

    assert min(len(places), most) == len(kept)
    assert sorted(places)[-min(2, most) :] == kept[-min(2, most) :]
    assert set(kept) <= places
