"""The finished sequences whose state is kept: which prompt may continue which, and which of them goes first.

Knows ids, positions and page tables; the states themselves lie with the engine loop.  No torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, ValuesView
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.cache.pages import PageTable

Ids = NDArray[np.int32]
MAX_ANCHORS = 16  # in one sequence: a long conversation must not pile up windows


def common_prefix(one: Ids, other: Ids) -> int:
    """How many leading ids are the same."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def best_place(prompt: Ids, tokens: Ids, places: Iterable[int]) -> int:
    """The last of some positions in `tokens` up to which a prompt is the same; 0 for none.

    At least one token of the prompt is left to compute, because logits are never kept.
    """
    shared = min(common_prefix(prompt, tokens), len(prompt) - 1)
    return max((place for place in places if place <= shared), default=0)


def thinned(places: Collection[int], most: int) -> list[int]:
    """At most so many positions, in order: of those too close together the ones with the least gap go.

    The newest two stay: the end of the last prompt, and the one before it.
    """
    kept = sorted(places)
    while len(kept) > most:
        gaps = [after - before for before, after in zip([0, *kept], kept[1:-1], strict=False)]
        kept.pop(gaps.index(min(gaps)) if len(kept) > 2 else 0)
    return kept


@dataclass(frozen=True, slots=True)
class Record:
    """A kept sequence: whose it is, its ids, the positions one can start from, and what it holds.

    `anchors` are positions inside it; its end is one too.  `own_bytes` is what it holds besides its pages.
    """

    id: int
    tenant: str
    tokens: Ids
    anchors: tuple[int, ...]
    table: PageTable
    own_bytes: int
    wish: bool | None  # whether a client asked to pin it, or not to
    pinned: bool
    used: int = 0

    @property
    def places(self) -> tuple[int, ...]:
        """All positions one can start from."""
        return (*self.anchors, len(self.tokens))

    @property
    def nbytes(self) -> int:
        """Bytes of its pages, shared ones too, and of the rest."""
        return len(self.table.pages) * self.table.ledger.page_bytes + self.own_bytes

    def freed(self) -> int:
        """Bytes that come free when it goes: pages that nobody else holds, and the rest."""
        ledger = self.table.ledger
        alone = sum(ledger.holders(page) == 1 for page in self.table.pages)
        return alone * ledger.page_bytes + self.own_bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """A record with its number, those that it replaces, and those that are too many, maybe itself."""

    record: Record
    replaced: tuple[Record, ...]
    excess: tuple[Record, ...]


class Records:
    """Kept sequences, at most `max_count`; least recently used go first, pinned ones last.

    Pinned records hold at most `max_pinned_bytes`; beyond that the least recently used one is pinned no more.
    """

    def __init__(self, *, max_count: int, max_pinned_bytes: int) -> None:
        self._max_count = max_count
        self._max_pinned_bytes = max_pinned_bytes
        self._records: dict[int, Record] = {}
        self._ids = 0
        self._clock = 0

    def __len__(self) -> int:
        return len(self._records)

    def values(self) -> ValuesView[Record]:
        """All records."""
        return self._records.values()

    def get(self, record_id: int) -> Record:
        """One of them."""
        return self._records[record_id]

    @property
    def own_bytes(self) -> int:
        """Bytes that all records hold besides their pages."""
        return sum(record.own_bytes for record in self._records.values())

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the pinned records."""
        return sum(record.nbytes for record in self._records.values() if record.pinned)

    def find(self, tenant: str, prompt: Ids) -> tuple[Record, int] | None:
        """The record and position that save most of this prompt, marked as used; the newest on ties."""
        found = max(
            (
                (best_place(prompt, record.tokens, record.places), record.used, record.id)
                for record in self._records.values()
                if record.tenant == tenant
            ),
            default=(0, 0, 0),
        )
        position, _, record_id = found
        if not position:
            return None
        self._clock += 1
        record = self._records[record_id] = replace(self._records[record_id], used=self._clock)
        return record, position

    def take(self, record_id: int) -> Record:
        """Remove a record; its pages stay held."""
        return self._records.pop(record_id)

    def keep(self, record: Record) -> Kept:
        """Add a finished sequence; all that have to go for it are removed."""
        self._clock += 1
        self._ids += 1
        record = replace(record, id=self._ids, used=self._clock)
        replaced = tuple(old for old in self._records.values() if _superseded(old, record))
        self._records[record.id] = record
        for old in replaced:
            del self._records[old.id]
        excess = tuple(
            self.take(self._order()[0].id) for _ in range(max(0, len(self._records) - self._max_count))
        )
        self._unpin()
        return Kept(record, replaced, excess)

    def yields(self, nbytes: int, *, spared: int | None = None) -> Record | None:
        """Remove the record that goes first for `nbytes`; None when there is none but the spared one.

        Of its class, the smallest that is enough by itself goes instead of the oldest.
        """
        order = [record for record in self._order() if record.id != spared]
        if not order:
            return None
        peers = [record for record in order if record.pinned == order[0].pinned]
        enough = [(freed, record.used, record.id) for record in peers if (freed := record.freed()) >= nbytes]
        return self.take(min(enough)[2] if enough else order[0].id)

    def check(self) -> None:
        """Raise AssertionError when the limits do not hold."""
        assert len(self._records) <= self._max_count, (len(self._records), self._max_count)
        pinned = [record for record in self._records.values() if record.pinned]
        assert self.pinned_bytes <= self._max_pinned_bytes or not pinned, self.pinned_bytes
        for record in self._records.values():
            assert record.table.needs(len(record.tokens)) == 0, record.id
            assert all(0 < place <= len(record.tokens) for place in record.places), record.anchors

    def _order(self) -> list[Record]:
        """Who goes first; of equally old ones the shorter."""
        return sorted(
            self._records.values(), key=lambda record: (record.pinned, record.used, len(record.tokens))
        )

    def _unpin(self) -> None:
        """Take the oldest pins away while the pinned ones hold too much."""
        for record in self._order():
            if self.pinned_bytes <= self._max_pinned_bytes:
                return
            if record.pinned:
                self._records[record.id] = replace(record, pinned=False)


def _superseded(old: Record, new: Record) -> bool:
    """Everything the old record could serve, the new one serves too."""
    length = len(old.tokens)
    if old.tenant != new.tenant or common_prefix(old.tokens, new.tokens) < length:
        return False
    return set(old.places) <= set(new.places) and old.pinned <= new.pinned
