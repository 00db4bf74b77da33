"""Tests of looks before the end: published borders, what is spent, and error rates by simulation."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from gates.harness import spending
from gates.harness.stats import wilson


@pytest.mark.parametrize(
    ("looks", "borders"),
    [
        pytest.param(1, [1.960], id="one"),
        pytest.param(2, [2.963, 1.969], id="two"),
        pytest.param(4, [4.333, 2.963, 2.359, 2.014], id="four"),
        pytest.param(5, [4.877, 3.357, 2.680, 2.290, 2.031], id="five"),
    ],
)
def test_the_borders_are_those_of_the_published_tables(looks: int, borders: list[float]) -> None:
    """Lan and DeMets 1983, O'Brien-Fleming-like spending, two-sided 5 %."""
    found = [-NormalDist().inv_cdf(level) for level in spending.levels(looks, alpha=0.025)]

    assert borders == pytest.approx(found, abs=6e-4)


def test_all_of_alpha_is_spent_at_the_end_and_hardly_any_at_the_start() -> None:
    assert 0.05 == pytest.approx(spending.spent(1, alpha=0.05))
    assert spending.spent(0.25, alpha=0.05) < 1e-4


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1])
def test_a_fraction_beyond_everything_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction of items seen"):
        spending.spent(fraction, alpha=0.05)


def test_no_look_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        spending.levels(0, alpha=0.05)


def test_a_chance_walk_stops_at_any_look_as_often_as_alpha_says() -> None:
    looks, walks = 4, 200_000
    steps = np.random.default_rng(5).normal(size=(walks, looks))
    scores = steps.cumsum(axis=1) / np.sqrt(np.arange(1, looks + 1))
    borders = [-NormalDist().inv_cdf(level) for level in spending.levels(looks, alpha=0.05)]
    stopped = int((scores >= np.array(borders)).any(axis=1).sum())
    low, high = wilson(stopped, walks, confidence=0.999)

    assert low <= 0.05 <= high


@pytest.mark.parametrize(
    ("seen", "look"), [(0, 0), (24, 0), (25, 1), (49, 1), (50, 2), (99, 3), (100, 4), (120, 4)]
)
def test_a_look_is_complete_when_its_items_are(seen: int, look: int) -> None:
    assert look == spending.look_of(seen, 100, looks=4)


def test_a_plan_of_nothing_completes_no_look() -> None:
    assert 0 == spending.look_of(0, 0, looks=4)


def test_the_items_of_a_look_complete_it() -> None:
    for planned in (1, 7, 164, 1319):
        for look in (1, 2, 3, 4):
            needed = spending.items_of(look, planned, looks=4)
            assert spending.look_of(needed, planned, looks=4) >= look
            assert spending.look_of(needed - 1, planned, looks=4) < look
