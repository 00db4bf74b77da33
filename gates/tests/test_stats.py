"""Tests of the statistics against published values, closed forms and exact enumeration."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.harness import stats

COUNTS = st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        pytest.param(70, 70, 0.948, 1.0, id="needle_all_right"),
        pytest.param(1277, 1319, 0.957, 0.976, id="gsm8k_at_96.8"),
        pytest.param(149, 164, 0.855, 0.944, id="humaneval_at_90.9"),
        pytest.param(9, 15, 0.357, 0.802, id="nine_of_fifteen"),
    ],
)
def test_wilson_gives_the_published_intervals(successes: int, n: int, low: float, high: float) -> None:
    assert (low, high) == pytest.approx(stats.wilson(successes, n), abs=6e-4)


def test_wilson_of_nothing_says_nothing() -> None:
    assert (0.0, 1.0) == stats.wilson(0, 0)


@given(COUNTS)
def test_wilson_holds_the_rate_and_stays_within_zero_and_one(counts: tuple[int, int]) -> None:
    successes, n = counts
    low, high = stats.wilson(successes, n)

    assert 0 <= low <= high <= 1
    assert n == 0 or low - 1e-12 <= successes / n <= high + 1e-12


@pytest.mark.parametrize(("n", "bound"), [(10, 0.26), (20, 0.14), (41, 0.07), (70, 0.042)])
def test_no_failure_leaves_what_the_rule_of_three_leaves(n: int, bound: float) -> None:
    assert bound == pytest.approx(stats.failure_bound(0, n), abs=2e-3)


@given(COUNTS)
def test_the_failure_bound_is_where_so_few_failures_become_unlikely(counts: tuple[int, int]) -> None:
    failures, n = counts
    bound = stats.failure_bound(failures, n)

    if failures == n:
        assert bound == 1.0
    else:
        assert math.isclose(0.05, stats.binomial_cdf(failures, n, bound), rel_tol=1e-6)


def test_the_binomial_tail_equals_exact_enumeration() -> None:
    p = Fraction(3, 10)
    exact = sum(math.comb(12, k) * p**k * (1 - p) ** (12 - k) for k in range(5))

    assert float(exact) == pytest.approx(stats.binomial_cdf(4, 12, 0.3), rel=1e-12)


def test_mcnemar_first_fires_at_the_published_counts() -> None:
    smallest = [
        next(worse for worse in range(60) if worse > better and stats.mcnemar(worse, better) <= 0.05)
        for better in range(11)
    ]

    assert [5, 7, 9, 10, 12, 13, 15, 16, 18, 19, 20] == smallest


def test_mcnemar_without_discordant_pairs_sees_nothing() -> None:
    assert stats.mcnemar(0, 0) == 1.0


def test_mcnemar_stands_for_thousands_of_pairs() -> None:
    assert 0 < stats.mcnemar(3000, 2900) < 0.2


def test_theil_sen_is_not_moved_by_one_wild_point() -> None:
    x = list(range(20))
    y = [2.0 * value + 1 for value in x]
    y[7] = 1000.0

    slope = stats.theil_sen(x, y)

    assert slope.value == pytest.approx(2.0)
    assert slope.interval[0] <= 2.0 <= slope.interval[1]


def test_theil_sen_interval_holds_zero_for_a_flat_row_with_noise() -> None:
    y = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.07, 0.93, 1.0]
    low, high = stats.theil_sen(range(10), y).interval

    assert low < 0 < high


def test_theil_sen_refuses_points_without_two_different_x() -> None:
    with pytest.raises(ValueError, match="two points"):
        stats.theil_sen([1, 1], [2, 3])


def test_the_same_seed_gives_the_same_bootstrap_interval() -> None:
    values = [float(value % 7) for value in range(40)]
    first, second, other = (stats.bootstrap(values, fmean, seed=seed, resamples=500) for seed in (1, 1, 2))

    assert first == second
    assert first != other


def test_the_bootstrap_interval_of_a_mean_is_about_two_standard_errors_wide() -> None:
    values = [0.0, 1.0] * 50
    low, high = stats.bootstrap(values, fmean, seed=3, resamples=2000)

    assert 0.5 - 0.098 == pytest.approx(low, abs=0.015)
    assert 0.5 + 0.098 == pytest.approx(high, abs=0.015)


def test_spread_is_measured_in_medians() -> None:
    assert stats.spread_ratio([1.0, 1.1, 0.9]) == pytest.approx(0.2)


def test_a_count_above_the_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of 3"):
        stats.wilson(4, 3)


@pytest.mark.parametrize(("k", "p", "expected"), [(0, 0.0, 1.0), (2, 1.0, 0.0), (3, 1.0, 1.0), (3, 0.5, 1.0)])
def test_the_binomial_tail_is_right_at_its_edges(k: int, p: float, expected: float) -> None:
    assert expected == pytest.approx(stats.binomial_cdf(k, 3, p))


def test_rows_of_different_length_and_empty_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="as many"):
        stats.theil_sen([1, 2], [1])
    with pytest.raises(ValueError, match="at least one value"):
        stats.bootstrap([], fmean, seed=1)
    with pytest.raises(ValueError, match="at least one value"):
        stats.spread_ratio([])


def test_the_interval_of_a_slope_takes_in_as_many_slopes_on_both_sides() -> None:
    """Sen 1968 counts from 1: of 15 slopes the second smallest and the second largest bound the interval."""
    y = [0.0, 0.0, 1.0, 1.0, 2.0, 3.0]

    assert (0.0, 1.0) == stats.theil_sen(range(6), y).interval
