"""Append-only rows shared between copies."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache.store import Rows


class RowsMachine(RuleBasedStateMachine):
    """Any interleaving of appends and forks leaves every copy with exactly its own rows."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[tuple[Rows, list[float]]] = [(Rows(2, torch.float32, tile=4), [])]
        self.next = 0.0

    @rule(which=st.integers(0, 99), count=st.integers(1, 9))
    def append(self, which: int, count: int) -> None:
        rows, wanted = self.copies[which % len(self.copies)]
        fresh = [self.next + step for step in range(count)]
        self.next += count
        rows.append(torch.tensor(fresh).unsqueeze(1).expand(-1, 2))
        wanted.extend(fresh)

    @rule(which=st.integers(0, 99))
    def fork(self, which: int) -> None:
        rows, wanted = self.copies[which % len(self.copies)]
        if len(self.copies) < 6:
            self.copies.append((rows.fork(), list(wanted)))

    @invariant()
    def every_copy_holds_its_rows(self) -> None:
        for rows, wanted in self.copies:
            assert len(wanted) == rows.count
            assert wanted == rows.data[: rows.count, 0].tolist()
            assert rows.data.shape[0] % 4 == 0
            assert rows.count * 8 == rows.nbytes


TestRows = RowsMachine.TestCase
TestRows.settings = settings(max_examples=50, stateful_step_count=30)
