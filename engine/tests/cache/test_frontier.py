"""Windows collected from a stream that is cut anywhere."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.frontier import Frontier


@given(
    ratio=st.integers(2, 6),
    cuts=st.lists(st.integers(1, 17), min_size=1, max_size=8),
    overlap=st.booleans(),
    copy_at=st.integers(0, 7),
)
def test_any_cutting_gives_the_same_windows(ratio: int, cuts: list[int], overlap: bool, copy_at: int) -> None:
    total = sum(cuts)
    stream = torch.arange(total * 3, dtype=torch.float32).view(total, 3)
    frontier = Frontier(ratio, 3, overlap=overlap)
    windows: list[torch.Tensor] = []
    at = 0
    for turn, count in enumerate(cuts):
        if turn == copy_at:
            abandoned = frontier
            frontier = Frontier(ratio, 3, overlap=overlap, start=abandoned.freeze())
            abandoned.push(torch.full((7, 3), -1.0))  # what happens to the original does not reach the copy
        closed = frontier.push(stream[at : at + count])
        at += count
        if closed:
            fresh, before = closed
            wanted = windows[-1] if overlap and windows else None
            assert (wanted is None) == (before is None)
            if wanted is not None and before is not None:
                assert torch.equal(wanted, before)
            windows.extend(fresh)

    whole = total // ratio
    assert whole == len(windows)
    assert whole == 0 or torch.equal(stream[: whole * ratio].view(whole, ratio, 3), torch.stack(windows))
