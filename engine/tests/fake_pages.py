"""Pages that hold token ids instead of rows: whoever shares a page wrongly reads somebody else's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.cache.pages import Ledger, PageTable


def ledger(*, pages: int = 4096, page_tokens: int = 8, state_bytes: int = 10) -> Ledger:
    """A ledger whose pages take one byte a token."""
    return Ledger(pages=pages, page_tokens=page_tokens, page_bytes=page_tokens, state_bytes=state_bytes)


@dataclass(slots=True)
class TokenPages:
    """What is written in the pages of a ledger."""

    ledger: Ledger
    pages: dict[int, list[int]] = field(default_factory=dict)

    def write(self, table: PageTable, start: int, tokens: Sequence[int]) -> None:
        """Put tokens at the positions from `start` on; nobody else may hold their pages."""
        for position, token in enumerate(tokens, start):
            number, place = divmod(position, self.ledger.page_tokens)
            page = table.pages[number]
            assert self.ledger.holders(page) == 1, f"page {page} is written while others hold it"
            page_tokens = self.pages.setdefault(page, [-1] * self.ledger.page_tokens)
            page_tokens[place] = token

    def read(self, pages: Sequence[int], length: int) -> list[int]:
        """The first `length` tokens of some pages."""
        found: list[int] = []
        for page in pages:
            found += self.pages.get(page, [-1] * self.ledger.page_tokens)
        assert len(found) >= length, (len(found), length)
        return found[:length]

    def copy(self, pages: tuple[int, int] | None) -> None:
        """Copy a page (from, to)."""
        if pages is not None:
            self.pages[pages[1]] = list(self.pages[pages[0]])
