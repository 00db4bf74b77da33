"""The ledger of finished sequences whose state is kept for the next request.

Owns which prompt may continue which record and which record goes first when room is short.
Knows ids and byte counts only; the states themselves lie with the engine loop.  No torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Record:
    """A kept sequence: its ids, the positions inside it one can start from, and when it was last used."""

    id: int
    tokens: tuple[int, ...]
    anchors: tuple[int, ...]
    nbytes: int
    used: int

    def matches(self, prompt: tuple[int, ...], position: int) -> bool:
        """The first `position` ids are the prompt's, and at least one prompt token is left to compute."""
        return position < len(prompt) and self.tokens[:position] == prompt[:position]

    def best(self, prompt: tuple[int, ...]) -> int:
        """The last position this record can serve for a prompt; 0 for none."""
        for position in sorted({*self.anchors, len(self.tokens)}, reverse=True):
            if self.matches(prompt, position):
                return position
        return 0


class Records:
    """Kept sequences within two limits: their number and their bytes; least recently used go first."""

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._records: dict[int, Record] = {}
        self._ids = 0
        self._clock = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def nbytes(self) -> int:
        """Bytes of all kept sequences."""
        return sum(record.nbytes for record in self._records.values())

    def find(self, prompt: tuple[int, ...]) -> tuple[Record, int] | None:
        """The record and position that save most of this prompt, marked as used; the newest on ties."""
        found = max(
            ((record.best(prompt), record.used, record.id) for record in self._records.values()),
            default=(0, 0, 0),
        )
        position, _, record_id = found
        if not position:
            return None
        self._clock += 1
        record = self._records[record_id] = replace(self._records[record_id], used=self._clock)
        return record, position

    def take(self, record_id: int) -> Record:
        """Remove a record because a running sequence continues it in place."""
        return self._records.pop(record_id)

    def keep(self, tokens: tuple[int, ...], anchors: tuple[int, ...], nbytes: int) -> tuple[int, list[int]]:
        """Add a finished sequence; returns its id and the ids of all records that had to go.

        The new record is itself among them when it alone exceeds the limits.
        """
        self._clock += 1
        self._ids += 1
        record = Record(self._ids, tokens, anchors, nbytes, self._clock)
        gone = [old.id for old in self._records.values() if _superseded(old, record)]
        for record_id in gone:
            del self._records[record_id]
        self._records[record.id] = record
        return record.id, gone + self._evict()

    def check(self) -> None:
        """Raise AssertionError when the limits do not hold."""
        assert len(self._records) <= self._max_count, (len(self._records), self._max_count)
        assert self.nbytes <= self._max_bytes, (self.nbytes, self._max_bytes)

    def _evict(self) -> list[int]:
        gone = []
        total = self.nbytes
        for record in sorted(self._records.values(), key=lambda record: record.used):
            if len(self._records) <= self._max_count and total <= self._max_bytes:
                break
            del self._records[record.id]
            total -= record.nbytes
            gone.append(record.id)
        return gone


def _superseded(old: Record, new: Record) -> bool:
    """Everything the old record could serve, the new one serves too."""
    length = len(old.tokens)
    if length > len(new.tokens) or new.tokens[:length] != old.tokens:
        return False
    return {*old.anchors, length} <= {*new.anchors, len(new.tokens)}
