"""The ledger of kept sequences as a state machine."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.scheduler.records import Record, Records

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


class LedgerMachine(RuleBasedStateMachine):
    """Mirrors the ledger with a plain list of what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.records = Records(max_count=4, max_bytes=60)
        self.kept: dict[int, tuple[tuple[int, ...], frozenset[int]]] = {}

    @rule(tokens=TOKENS, places=st.sets(st.integers(1, 12)), nbytes=st.integers(1, 80))
    def keep(self, tokens: tuple[int, ...], places: set[int], nbytes: int) -> None:
        anchors = tuple(sorted(place for place in places if place < len(tokens)))
        record_id, gone = self.records.keep(tokens, anchors, nbytes)
        self.kept[record_id] = (tokens, frozenset(anchors) | {len(tokens)})
        for old in gone:
            del self.kept[old]

    @rule(prompt=TOKENS)
    def find(self, prompt: tuple[int, ...]) -> None:
        best = max(
            (
                place
                for tokens, places in self.kept.values()
                for place in places
                if place < len(prompt) and tokens[:place] == prompt[:place]
            ),
            default=0,
        )
        found = self.records.find(prompt)

        assert best == (found[1] if found else 0)
        if found is not None:
            assert found[1] in self.kept[found[0].id][1]

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        if self.kept:
            record_id = data.draw(st.sampled_from(sorted(self.kept)))
            taken = self.records.take(record_id)

            assert self.kept.pop(record_id)[0] == taken.tokens

    @invariant()
    def limits_hold(self) -> None:
        self.records.check()
        assert len(self.kept) == len(self.records)


LedgerMachine.TestCase.settings = settings(max_examples=60, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_the_least_recently_used_record_goes_first() -> None:
    records = Records(max_count=2, max_bytes=100)
    records.keep((1, 1), (), 1)
    second, _ = records.keep((2, 2), (), 1)
    records.find((1, 1, 5))
    _, gone = records.keep((3, 3), (), 1)

    assert [second] == gone


def test_a_record_that_a_longer_one_replaces_goes_at_once() -> None:
    records = Records(max_count=9, max_bytes=100)
    short, _ = records.keep((1, 2), (1,), 1)
    _, gone = records.keep((1, 2, 3), (1, 2), 1)

    assert [short] == gone


def test_equal_hashes_do_not_make_prompts_equal() -> None:
    record = Record(1, (-1, 5), (), 1, 1)  # in CPython hash(-1) == hash(-2)

    assert 0 == record.best((-2, 5, 6))
