"""What the loop knows of a runner and of the state of a sequence: what can be kept, shared and computed.

No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from engine.cache.pages import Ledger, PageTable


class CacheView(Protocol):
    """State of one sequence, as the runner keeps it."""

    @property
    def length(self) -> int:
        """Tokens that are in the state."""
        ...

    @property
    def own_bytes(self) -> int:
        """Bytes this state holds besides its pages."""
        ...

    def snapshot(self) -> Any:
        """This state frozen; it has a `length` and the `nbytes` it holds besides the pages."""
        ...

    def resume(self, snapshot: Any, copied: tuple[int, int] | None) -> None:
        """Begin where another sequence was frozen, over a page table that shares its full pages.

        `copied`: the page that was half full there, and this sequence's own page for it.
        """
        ...


class LogitRows(Protocol):
    """Anything NumPy can read as an array without a copy: an array, or a tensor in main memory."""

    def __array__(self, dtype: Any = None) -> Any:
        """The same memory as an array."""
        ...


class ModelRunner(Protocol):
    """Computes; decides nothing."""

    @property
    def ledger(self) -> Ledger:
        """The pages that all sequences share."""
        ...

    def new_cache(self, table: PageTable) -> CacheView:
        """An empty state over the pages of a table, which grows beside it."""
        ...

    def step(self, slices: Sequence[tuple[Any, Sequence[int]]]) -> LogitRows:
        """Advance each state by its tokens; float32 logits of each slice's last token, [B, V]."""
        ...
