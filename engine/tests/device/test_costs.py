"""The table of verify costs: whole numbers, immune to a drift of the clock, with a bound that holds."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.device import costs

TRUE = {1: 0.010, 2: 0.0112, 3: 0.0123, 4: 0.0135, 5: 0.0149}  # seconds


def test_a_clock_that_drifts_gives_the_true_costs() -> None:
    """Each round is a palindrome, so that what rises evenly from call to call cancels."""
    calls: list[tuple[int, int]] = []

    def clock(depth: int, rows: int) -> float:
        calls.append((depth, rows))
        return TRUE[rows] + 1e-5 * len(calls)

    found = costs.measure([2048, 131072], 4, clock)

    assert [2048, 131072] == [row["depth"] for row in found["depths"]]
    assert (10_000, [1, 2, 3, 4, 5], 4) == (found["unit"], found["rows"], found["rounds"])
    first = found["depths"][0]["cost"]
    assert first == pytest.approx([10_000 * (TRUE[r] + 2.05e-4) / (TRUE[1] + 2.05e-4) for r in TRUE], abs=3)
    assert Counter({(depth, rows): 8 for depth in (2048, 131072) for rows in TRUE}) == Counter(calls)


@given(
    st.lists(st.tuples(st.floats(1e-3, 1.0), st.floats(1e-3, 1.0)), min_size=1, max_size=40),
)
def test_entries_are_whole_and_the_bound_is_never_below_the_cost(seconds: list[tuple[float, float]]) -> None:
    row = costs.entries([{1: plain, 5: verify} for plain, verify in seconds], (1, 5))

    assert [10_000, 10_000] == [row["cost"][0], row["upper"][0]]
    assert all(isinstance(value, int) for value in row["cost"] + row["upper"])
    assert row["cost"][1] <= row["upper"][1]


def test_the_bound_lies_above_the_median_in_at_least_39_of_40_samples() -> None:
    """By counting: the bound fails when fewer values than its place lie below the true median."""
    for count in (8, 20, 32, 33, 100, 200):
        place = costs.upper_place(count)
        fails = sum(math.comb(count, larger) for larger in range(place + 1, count + 1)) / 2**count

        assert fails <= 0.025
        looser = sum(math.comb(count, larger) for larger in range(place, count + 1)) / 2**count
        assert looser > 0.025


def test_the_bound_holds_for_times_with_a_long_tail() -> None:
    draw = random.Random(5)
    median = math.exp(0.1)
    kept = 0
    for _ in range(400):
        rounds = [{1: 1.0, 2: math.exp(draw.gauss(0.1, 0.3))} for _ in range(32)]
        kept += costs.entries(rounds, (1, 2))["upper"][1] >= costs.UNIT * median

    assert kept >= 380
