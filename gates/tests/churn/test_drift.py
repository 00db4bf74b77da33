"""Memory that grows is told from memory that only wavers, warms up, or has a single peak."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.churn.drift import BUCKETS, NEEDS, Drift, Sample, drift

MIB = 2**20
MINUTES = 10


def samples(
    grown_per_minute: float, *, noise: float = 0.0, seed: int = 1, warm_up: float = 0.0
) -> list[Sample]:
    """Ten minutes, two samples a second: a base of 500 MiB, slope, noise, and a rise in the first quarter."""
    draw = random.Random(seed)
    return [
        Sample(
            t,
            MIB
            * (500 + grown_per_minute * t / 60 + draw.uniform(-noise, noise) + warm_up * min(1.0, t / 150)),
        )
        for t in (n / 2 for n in range(2 * 60 * MINUTES))
    ]


def found(rows: list[Sample], *, warm_up: float = 0.25) -> Drift:
    result = drift(rows, span_s=60 * MINUTES, warm_up=warm_up)
    assert result is not None
    return result


@given(st.floats(-3, 3), st.floats(0, 2), st.integers(0, 99))
def test_the_interval_holds_the_true_slope(slope: float, noise: float, seed: int) -> None:
    low, high = found(samples(slope, noise=noise, seed=seed)).interval
    slack = 0.02 * MIB  # 95 % intervals miss now and then, by little

    assert low - slack <= slope * MIB <= high + slack


def test_a_rise_within_the_warm_up_is_no_slope() -> None:
    assert abs(found(samples(0, warm_up=100)).slope) < 1
    assert found(samples(0, warm_up=100), warm_up=0.0).quarters > 1.0


def test_one_peak_moves_neither_slope_nor_quarters() -> None:
    rows = samples(0)
    rows[700] = Sample(rows[700].t_s, 4000 * MIB)

    assert 0 == found(rows).slope
    assert 1 == found(rows).quarters


def test_the_last_quarter_is_held_against_the_first() -> None:
    assert 1.05 < found(samples(5), warm_up=0.0).quarters < 1.10


def test_too_few_moments_tell_nothing() -> None:
    assert drift([], span_s=60 * MINUTES, warm_up=0.25) is None
    assert drift(samples(1)[: NEEDS - 1], span_s=6, warm_up=0.0) is None
    assert BUCKETS == found(samples(1)).n


@pytest.mark.parametrize("part", [slice(0, 850), slice(350, None)], ids=["no_end", "no_beginning"])
def test_a_look_that_misses_a_quarter_tells_nothing(part: slice) -> None:
    rows = samples(0)[part]

    assert drift(rows, span_s=60 * MINUTES, warm_up=0.0) is None
