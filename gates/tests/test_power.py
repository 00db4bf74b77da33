"""Tests of power and of the order of items against the published table and enumeration."""

from __future__ import annotations

import math

import pytest

from gates.harness import power
from gates.harness.stats import mcnemar


@pytest.mark.parametrize(
    ("n", "noise", "percent"),
    [
        pytest.param(1319, 0.0, 0.5, id="gsm8k_quiet"),
        pytest.param(1319, 0.03, 1.5, id="gsm8k"),
        pytest.param(164, 0.0, 4.1, id="humaneval_quiet"),
        pytest.param(164, 0.1, 8.7, id="humaneval_noisy"),
        pytest.param(500, 0.06, 3.6, id="mbpp"),
        pytest.param(541, 0.01, 1.9, id="ifeval"),
        pytest.param(1140, 0.03, 1.6, id="mmlu_subset"),
        pytest.param(69, 0.0, 9.5, id="tool_scenarios"),
        pytest.param(15, 0.0, 40.8, id="hard_mode"),
    ],
)
def test_the_detectable_drop_is_that_of_the_published_table(n: int, noise: float, percent: float) -> None:
    assert percent == pytest.approx(100 * power.detectable_drop(n, noise=noise), abs=0.1)


def test_what_no_drop_could_show_is_a_drop_of_everything() -> None:
    assert 1.0 == power.detectable_drop(4, noise=0.0)
    assert 1.0 == power.detectable_drop(0, noise=0.0)


def test_the_power_is_the_sum_over_all_outcomes() -> None:
    n, noise, drop = 30, 0.1, 0.2
    lost, gained = noise / 2 + drop, noise / 2
    expected = math.fsum(
        math.comb(n, b) * math.comb(n - b, c) * lost**b * gained**c * (1 - lost - gained) ** (n - b - c)
        for b in range(n + 1)
        for c in range(n - b + 1)
        if mcnemar(b, c) <= 0.05
    )

    assert expected == pytest.approx(power.power_of(n, drop, noise=noise), abs=1e-9)


def test_shares_beyond_everything_are_refused() -> None:
    with pytest.raises(ValueError, match="must lie within 0 and 1"):
        power.power_of(10, 0.8, noise=0.3)


def test_the_order_owes_nothing_to_the_file() -> None:
    names = [f"gsm8k/{place}" for place in range(50)]
    order = power.hashed_order(names, seed=7)

    assert order == power.hashed_order(reversed(names), seed=7)
    assert order != power.hashed_order(names, seed=8)
    assert names != order
    assert set(names) == set(order)
