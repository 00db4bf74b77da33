"""What the loop knows of a runner and of the state of a sequence: what can be kept, shared and computed.

No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from engine.cache.pages import Ledger, PageTable

ROWS = "rows."  # what names of arrays with compressed rows begin with


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

    def arrays(self, anchors: Mapping[int, Any]) -> dict[str, NDArray[Any]]:
        """This state and its snapshots as arrays, of which those named `rows.` lie in pages.

        MemoryError when there is no memory for them.
        """
        ...

    def fill(self, length: int, anchors: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> dict[int, Any]:
        """Become what the arrays came from, over a table that has its pages; its snapshots by position.

        ValueError or KeyError when they do not fit, MemoryError when there is no memory for it.
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

    @property
    def device_bytes(self) -> int:
        """Bytes that the allocator of the device holds, in use or not; 0 on a CPU.  Any thread may ask."""
        ...

    def new_cache(self, table: PageTable) -> CacheView:
        """An empty state over the pages of a table, which grows beside it; MemoryError without memory."""
        ...

    def step(self, slices: Sequence[tuple[Any, Sequence[int]]]) -> LogitRows:
        """Advance each state by its tokens; float32 logits of each slice's last token, [B, V]."""
        ...
