"""The budget of cache memory: what open requests hold and may still take, and who yields when it is short.

A request is let in only if it can finish its prompt and one tranche of its answer whatever happens, because
everything that is merely kept can yield to it.  Pages are taken as it grows, not when it is let in.
Knows page tables and numbers of bytes.  No torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.cache.pages import Ledger, PageTable
from engine.core import CacheKind, Eviction, Request
from engine.errors import CapacityError
from engine.scheduler.records import MAX_ANCHORS, Ids, Record, Records, best_place

PINNED_SHARE = 0.8  # of the budget, at most, for pinned records


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bounds in tokens and records.

    `tranche`: what of an answer is promised at once.  `pin_from`: from this length on sequences are pinned.
    `anchor_every`: the grid of positions that are kept inside a prompt.
    """

    max_records: int = 32
    tranche: int = 32768
    pin_from: int = 65536
    anchor_every: int = 4096


@dataclass(slots=True)
class Claim:
    """What an open request holds and may take: pages for `tokens` tokens, and `states` windows.

    `restarted`: it no longer shares what it shared when it was let in.  `rests`: it waits for the room to be
    computed again.
    """

    request: Request
    tokens: int
    states: int
    table: PageTable | None = None  # None while it waits
    wish: bool | None = None  # whether to pin what it leaves, if it or what it continues says so
    restarted: bool = False
    rests: bool = False

    def needs(self, page_tokens: int) -> int:
        """Pages that it may still take."""
        return -(-self.tokens // page_tokens) if self.table is None else self.table.needs(self.tokens)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a prompt starts: the first `cached` tokens of a record, or of the running request `origin`.

    `anchors` are the positions kept there.
    """

    kind: CacheKind
    cached: int = 0
    origin: int | str | None = None
    anchors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What a request starts with: kept positions, and a page to copy (from, to) first of all."""

    anchors: tuple[int, ...] = ()
    copied: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A running request that others may start from: its tokens and the positions that are kept in it."""

    name: str
    tenant: str
    tokens: Ids
    anchors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes of the budget: all, and those held by open requests, by kept records, by pinned ones among them.

    Pages that open requests and records share count as the requests'.
    """

    total: int
    live: int
    warm: int
    pinned: int
    pinned_records: int

    @property
    def used(self) -> int:
        """Bytes that are held."""
        return self.live + self.warm

    def by_kind(self) -> dict[str, int]:
        """Bytes by what they are used for."""
        return {
            "live": self.live,
            "warm": self.warm,
            "pinned": self.pinned,
            "free": self.total - self.used,
            "budget": self.total,
        }


class Memory:
    """Claims of open requests and kept records over one ledger."""

    def __init__(self, ledger: Ledger, limits: MemoryLimits) -> None:
        self.ledger = ledger
        self.limits = limits
        self.total = ledger.pages * ledger.page_bytes
        self.records = Records(max_count=limits.max_records, max_pinned_bytes=int(PINNED_SHARE * self.total))
        self._claims: dict[str, Claim] = {}
        self._evicted: list[Eviction] = []

    @property
    def used(self) -> int:
        """Bytes that are held now, by open requests and by records."""
        states = sum(claim.states for claim in self._claims.values() if claim.table is not None)
        held = self.ledger.used * self.ledger.page_bytes + states * self.ledger.state_bytes
        return held + self.records.own_bytes

    @property
    def promised(self) -> int:
        """Bytes that open requests hold or may still take; what they share counts once."""
        states = sum(claim.states for claim in self._claims.values())
        return self._owed(self._claims.values()) * self.ledger.page_bytes + states * self.ledger.state_bytes

    def reserve(self, request: Request) -> None:
        """Let a request in; raises CapacityError when not even the room of all records is enough for it."""
        length = len(request.prompt)
        tokens = length + max(1, min(request.max_tokens, self.limits.tranche))
        claim = Claim(request, tokens, self._states(request), wish=request.pin)
        need = self._pages(tokens) * self.ledger.page_bytes + claim.states * self.ledger.state_bytes
        promised = self.promised
        if promised + need > self.total:
            raise CapacityError(self._refusal(need, promised), retry_after_s=5)
        self._claims[request.id] = claim

    def source(self, request: Request, running: Iterable[Running]) -> Source:
        """The place that saves most of a prompt, in a record or in a running request of the same tenant."""
        if not request.reuse:
            return Source(CacheKind.COLD)
        prompt = np.asarray(request.prompt, np.int32)
        found = self.records.find(request.tenant, prompt)
        best = Source(CacheKind.COLD)
        if found is not None:
            record, cached = found
            kind = CacheKind.WARM if cached == len(record.tokens) else CacheKind.FORK
            best = Source(kind, cached, record.id, record.anchors)
        for other in running:
            if other.tenant == request.tenant:
                cached = best_place(prompt, other.tokens, other.anchors)
                if cached > best.cached:
                    best = Source(CacheKind.FORK, cached, other.name, other.anchors)
        return best

    def start(self, request: Request, source: Source) -> Start:
        """Give a request its page table, and make room for its prompt."""
        claim = self._claims[request.id]
        copied = spared = None
        if source.origin is None:
            claim.table = PageTable(self.ledger)
        elif isinstance(source.origin, str):
            copied = self._fork(claim, _table(self._claims[source.origin]), source.cached, None)
        elif source.kind is CacheKind.WARM:
            record = self.records.take(source.origin)
            claim.table, claim.wish = record.table, _either(claim.wish, record.wish)
        else:
            record, spared = self.records.get(source.origin), source.origin
            claim.wish = _either(claim.wish, record.wish)
            copied = self._fork(claim, record.table, source.cached, spared)
        anchors = self._inherit(claim, source)
        self._make_room(_table(claim).needs(len(request.prompt)), spared=spared)
        return Start(anchors, copied)

    def grow(self, name: str, tokens: int) -> None:
        """Take the pages for `tokens` tokens of a running request; what it was promised is always there."""
        table = self.table(name)
        self._make_room(table.needs(tokens))
        table.grow(tokens)

    def extend(self, name: str, tokens: int) -> bool:
        """Whether a request may grow to `tokens`: pays for tranches, or all that it may have.

        A rule may force more tokens at once than a tranche has.
        """
        claim = self._claims[name]
        missing = -(-max(0, tokens - claim.tokens) // self.limits.tranche)
        most = max(claim.tokens, len(claim.request.prompt) + claim.request.max_tokens)
        grown = min(claim.tokens + missing * self.limits.tranche, most)
        more = self._pages(grown) - self._pages(claim.tokens)
        if missing and self.promised + more * self.ledger.page_bytes > self.total:
            return False
        claim.tokens = grown
        return True

    def wish(self, name: str) -> bool | None:
        """Whether what a running request leaves is to be pinned, if anybody said so."""
        return self._claims[name].wish

    def table(self, name: str) -> PageTable:
        """The pages of a running request."""
        return _table(self._claims[name])

    def restart(self, name: str) -> None:
        """Give the pages of a running request back, because it is computed again.

        It rests until `resume` finds room for all of it: what it shared was paid for once, by another.
        """
        claim = self._claims[name]
        _table(claim).close()
        claim.table = PageTable(self.ledger)
        claim.states = self._states(claim.request)  # those that it inherited are gone
        claim.restarted = claim.rests = True

    def rests(self, name: str) -> bool:
        """Whether a running request waits for the room to be computed again."""
        return self._claims[name].rests

    def resume(self) -> bool:
        """Let requests that rest go on, in their order, as far as there is room; whether none rests."""
        for claim in [claim for claim in self._running() if claim.rests]:
            if not self._fits(claim):
                return False
            claim.rests = False
        return True

    def fits(self, name: str) -> bool:
        """Whether a request that was let in can start: not where it takes what restarted ones need again."""
        return not self._overdrawn or self._fits(self._claims[name])

    def release(self, name: str) -> None:
        """Forget a request and give its pages back; unknown ones are ignored."""
        claim = self._claims.pop(name, None)
        if claim is not None and claim.table is not None:
            claim.table.close()

    def keep(self, name: str, tokens: tuple[int, ...], anchors: tuple[int, ...], own_bytes: int) -> Record:
        """Make a record of a finished request.  It may be evicted at once."""
        claim = self._claims.pop(name)
        ids = np.asarray(tokens, np.int32)
        return self._add(
            Record(0, claim.request.tenant, ids, anchors, _table(claim), own_bytes, claim.wish, pinned=False)
        )

    def adopt(
        self, tenant: str, tokens: Ids, anchors: tuple[int, ...], own_bytes: int, *, wish: bool | None = None
    ) -> Record | None:
        """A record for a state that comes from elsewhere, with pages to fill; None when there is no room."""
        pages = self._pages(len(tokens))
        need = pages * self.ledger.page_bytes + own_bytes
        if self.used - self._idle + need > self.total:
            return None
        while (short := self.used + need - self.total) > 0:
            record = self.records.yields(short)
            assert record is not None
            self._evict(record)
        table = PageTable(self.ledger)
        table.grow(len(tokens))
        record = self._add(Record(0, tenant, tokens, anchors, table, own_bytes, wish, pinned=False))
        if record.id in {gone.record for gone in self._evicted}:  # all others are pinned, or none may be kept
            self._evicted = [gone for gone in self._evicted if gone.record != record.id]
            return None
        return record

    def discard(self, record_id: int) -> None:
        """Take an adopted record back, because its state could not be filled."""
        self.records.take(record_id).table.close()

    def _add(self, record: Record) -> Record:
        """Keep a record, pinned if it or what it continues asks for that, or by its length."""
        long = len(record.tokens) >= self.limits.pin_from
        kept = self.records.keep(replace(record, pinned=long if record.wish is None else record.wish))
        for old in kept.replaced:
            self._evict(old, replaced=True)
        for old in kept.excess:
            self._evict(old)
        return kept.record

    def stats(self) -> MemoryStats:
        """What is held now."""
        open_pages = len({page for claim in self._running() for page in _table(claim).pages})
        states = sum(claim.states for claim in self._running())
        live = open_pages * self.ledger.page_bytes + states * self.ledger.state_bytes
        pinned = [record.nbytes for record in self.records.values() if record.pinned]
        return MemoryStats(self.total, live, self.used - live, sum(pinned), len(pinned))

    def evicted(self) -> tuple[Eviction, ...]:
        """The records that went since this was asked last."""
        gone, self._evicted = tuple(self._evicted), []
        return gone

    def check(self) -> None:
        """Raise AssertionError when a count is wrong or a promise could not be kept."""
        self.records.check()
        tables = [_table(claim) for claim in self._running()]
        tables += [record.table for record in self.records.values()]
        self.ledger.check(tables)
        claims = list(self._claims.values())
        if self._overdrawn:
            claims = [claim for claim in self._running() if not claim.rests]
        pages = self._owed(claims)
        assert pages <= self.ledger.pages, (pages, self.ledger.pages)

    @property
    def _idle(self) -> int:
        """Bytes that come free when all records go."""
        live = {page for claim in self._running() for page in _table(claim).pages}
        kept = {page for record in self.records.values() for page in record.table.pages}
        return len(kept - live) * self.ledger.page_bytes + self.records.own_bytes

    def _running(self) -> Iterator[Claim]:
        return (claim for claim in self._claims.values() if claim.table is not None)

    @property
    def _overdrawn(self) -> bool:
        """More may be promised than there is: somebody who shared pages does so no longer."""
        return any(claim.restarted for claim in self._claims.values())

    def _owed(self, claims: Collection[Claim]) -> int:
        """Pages that some requests hold or may still take; what they share counts once."""
        held = {page for claim in claims if claim.table is not None for page in claim.table.pages}
        return len(held) + sum(claim.needs(self.ledger.page_tokens) for claim in claims)

    def _fits(self, claim: Claim) -> bool:
        """Whether all of a request has room beside those that go on; the first to go on always has."""
        going = [other for other in self._running() if not other.rests]
        states = sum(other.states for other in self._running()) + (claim.states if claim.table is None else 0)
        pages = self._owed([*going, claim])
        nbytes = pages * self.ledger.page_bytes + states * self.ledger.state_bytes
        return not going or nbytes <= self.ledger.pages * self.ledger.page_bytes

    def _states(self, request: Request) -> int:
        """Windows that a request may need by itself: the live one, and those kept in its prompt."""
        grid = min(MAX_ANCHORS - 1, len(request.prompt) // self.limits.anchor_every)
        return 2 + (grid if request.reuse else 0)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.ledger.page_tokens)

    def _fork(
        self, claim: Claim, table: PageTable, tokens: int, spared: int | None
    ) -> tuple[int, int] | None:
        """Share whole pages with a claim and take one for the rest, if need be from the source itself.

        The page to copy (from, to), if there is a rest.
        """
        whole, rest = divmod(tokens, self.ledger.page_tokens)
        original = table.pages[whole] if rest else None
        claim.table = table.share(whole)
        if original is None:
            return None
        self._make_room(1, spared=spared)
        self._make_room(1)
        claim.table.grow(tokens)
        return original, claim.table.pages[whole]

    def _inherit(self, claim: Claim, source: Source) -> tuple[int, ...]:
        """The newest anchors of a source that the budget has room for."""
        room = max(0, self.total - self.promised) // max(1, self.ledger.state_bytes)
        kept = sorted(place for place in source.anchors if place <= source.cached)[-room:] if room else []
        claim.states += len(kept)
        return tuple(kept)

    def _make_room(self, pages: int, *, spared: int | None = None) -> None:
        """Let records yield until so many pages are free, or none is left."""
        nbytes = pages * self.ledger.page_bytes
        while (short := self.used + nbytes - self.total) > 0:
            record = self.records.yields(short, spared=spared)
            if record is None:
                return
            self._evict(record)

    def _evict(self, record: Record, *, replaced: bool = False) -> None:
        self._evicted.append(Eviction(record.id, len(record.tokens), record.freed(), record.pinned, replaced))
        record.table.close()

    def _refusal(self, need: int, promised: int) -> str:
        running = sum(claim.table is not None for claim in self._claims.values())
        waiting = len(self._claims) - running
        return (
            f"no memory for this request now: it needs {_mib(need)} of {_mib(self.total)} for its prompt and "
            f"the first part of its answer, and {running} running and {waiting} waiting requests hold "
            f"{_mib(promised)}; try again when they are done, or send a shorter one"
        )


def _table(claim: Claim) -> PageTable:
    assert claim.table is not None
    return claim.table


def _either(first: bool | None, second: bool | None) -> bool | None:
    return second if first is None else first


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"
