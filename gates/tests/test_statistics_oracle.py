"""Our statistics, written on the standard library alone, against scipy and statsmodels to nine digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize
from scipy import stats as scipy_stats
from statsmodels.api import OLS
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from gates.harness import paired, power, spending, stats
from gates.harness.paired import Pairs

COUNTS = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
PAIRS = st.tuples(st.integers(1, 1500), st.integers(0, 60), st.integers(0, 60)).filter(
    lambda counts: counts[1] + counts[2] < counts[0]
)
few = settings(max_examples=50, deadline=None)


def nearly(value: Any) -> Any:
    """Equal to nine digits."""
    return pytest.approx(value, rel=1e-9, abs=1e-9)


@few
@given(COUNTS, st.sampled_from([0.9, 0.95, 0.99]))
def test_wilson(counts: tuple[int, int], confidence: float) -> None:
    expected = proportion_confint(*counts, alpha=1 - confidence, method="wilson")

    assert expected == nearly(stats.wilson(*counts, confidence=confidence))


@few
@given(COUNTS)
def test_the_failure_bound_is_that_of_clopper_and_pearson(counts: tuple[int, int]) -> None:
    failures, n = counts
    expected = 1.0 if failures == n else scipy_stats.beta.ppf(0.95, failures + 1, n - failures)

    assert expected == nearly(stats.failure_bound(failures, n))


@few
@given(COUNTS, st.floats(0.001, 0.999))
def test_the_binomial_sum(counts: tuple[int, int], rate: float) -> None:
    expected = scipy_stats.binom.cdf(*counts, rate)

    assert expected == nearly(stats.binomial_cdf(*counts, rate))


@few
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs(worse: int, better: int) -> None:
    n = worse + better
    expected = scipy_stats.binomtest(worse, n, alternative="greater").pvalue if n else 1.0

    assert expected == nearly(stats.mcnemar(worse, better))


@few
@given(COUNTS, COUNTS)
def test_fisher(first: tuple[int, int], second: tuple[int, int]) -> None:
    table = [[first[0], first[1] - first[0]], [second[0], second[1] - second[0]]]
    expected = scipy_stats.fisher_exact(table, alternative="greater").pvalue

    assert expected == nearly(stats.fisher(*first, *second))


@few
@given(st.lists(st.floats(-5, 5, width=32), min_size=5, max_size=40))
def test_theil_sen(values: list[float]) -> None:
    x = list(range(len(values)))
    expected = scipy_stats.theilslopes(values, x, alpha=0.95)
    found = stats.theil_sen(x, values)

    assert expected.slope == nearly(found.value)
    assert found.interval[0] <= expected.low_slope + 1e-9
    assert found.interval[1] >= expected.high_slope - 1e-9


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0, 0.1), min_size=1, max_size=20))
def test_holm(p_values: list[float]) -> None:
    expected = multipletests(p_values, alpha=0.05, method="holm")[0]
    named = {str(place): p for place, p in enumerate(p_values)}

    assert {str(place) for place in np.flatnonzero(expected)} == set(paired.holm(named))


@few
@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.integers(0, 9)), min_size=20, max_size=200
    ).filter(lambda rows: len({cluster for _, cluster in rows}) > 1)
)
def test_errors_by_cluster(rows: list[tuple[float, int]]) -> None:
    drops, clusters = [drop for drop, _ in rows], [cluster for _, cluster in rows]
    fitted = OLS(drops, np.ones(len(drops))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(clusters)}, use_t=False
    )
    found = paired.clustered(drops, clusters)

    assert fitted.params[0] == nearly(found.mean)
    assert fitted.bse[0] == nearly(found.error)


def restricted_share(n: int, worse: int, better: int, drop: float) -> float:
    """The likeliest share of gains when the true drop is given, by a search of the likelihood's slope."""

    def slope(gains: float) -> float:
        return worse / (gains + drop) + better / gains - 2 * (n - worse - better) / (1 - 2 * gains - drop)

    least = max(0.0, -drop)
    tiny, most = least + 1e-13, (1 - drop) / 2 - 1e-13
    if slope(tiny) <= 0:  # the likelihood is largest at the border
        return least
    return float(optimize.brentq(slope, tiny, most, xtol=1e-15, rtol=1e-14))


@few
@given(PAIRS, st.sampled_from([0.05, 0.025, 0.01]))
def test_the_limit_of_the_drop_inverts_the_score_test(counts: tuple[int, int, int], alpha: float) -> None:
    """Tango 1998; the restricted shares are found by a search here and by his closed form there."""
    n, worse, better = counts
    limit = paired.drop_limit(Pairs(n, worse, better, 0), alpha=alpha)
    gains = restricted_share(n, worse, better, limit)
    statistic = (worse - better - n * limit) / np.sqrt(n * (2 * gains + limit * (1 - limit)))

    assert scipy_stats.norm.ppf(alpha) == pytest.approx(statistic, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(20, 1500), st.floats(0, 0.1), st.floats(0.001, 0.2), st.sampled_from([0.05, 0.01]))
def test_the_power_is_the_sum_over_all_discordant_pairs(
    n: int, noise: float, drop: float, alpha: float
) -> None:
    pairs = np.arange(n + 1)
    critical = scipy_stats.binom.isf(alpha, pairs, 0.5) + 1  # the smallest count whose tail is at most alpha
    seen = scipy_stats.binom.sf(critical - 1, pairs, (noise / 2 + drop) / (noise + drop))
    expected = float((scipy_stats.binom.pmf(pairs, n, noise + drop) * seen).sum())

    assert expected == pytest.approx(power.power_of(n, drop, noise=noise, alpha=alpha), abs=1e-8)


@pytest.mark.parametrize("alpha", [0.05, 0.025, 0.01])
def test_two_looks_together_err_as_often_as_alpha_says(alpha: float) -> None:
    first, second = spending.levels(2, alpha=alpha)
    border, end = scipy_stats.norm.isf(first), scipy_stats.norm.isf(second) * np.sqrt(2)

    def passed_by_then_over(score: float) -> float:
        return float(scipy_stats.norm.pdf(score) * scipy_stats.norm.sf(end - score))

    late, _ = integrate.quad(passed_by_then_over, -12, border, epsabs=1e-13)
    assert alpha == pytest.approx(first + late, abs=1e-9)


def later_looks(levels: Sequence[float]) -> float:
    """The chance that no look of a chance walk is over its border, by the multivariate normal."""
    looks = len(levels)
    place = np.arange(1, looks + 1)
    between = np.sqrt(np.minimum.outer(place, place) / np.maximum.outer(place, place))
    normal = scipy_stats.multivariate_normal(cov=between, seed=3, abseps=1e-7, maxpts=2_000_000)
    return float(normal.cdf(scipy_stats.norm.isf(levels)))


@pytest.mark.parametrize("looks", [3, 4])
def test_more_looks_together_err_as_often_as_alpha_says(looks: int) -> None:
    assert 0.95 == pytest.approx(later_looks(spending.levels(looks, alpha=0.05)), abs=1e-5)
