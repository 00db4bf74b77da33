"""Spread and slope of first-token times over depth."""

from __future__ import annotations

import random

import pytest

from gates.harness.stats import Slope
from gates.needle.flatness import Tier, Timing, distance_from_zero, joint_slope, scaled, slope, spread, width

DEPTHS = [0.05 + 0.1 * n for n in range(10)]


def tier(times: list[float]) -> Tier:
    """A tier with these times over evenly spread depths."""
    return Tier(8192, tuple(Timing(depth, time) for depth, time in zip(DEPTHS, times, strict=False)))


def test_equal_times_are_flat() -> None:
    flat = tier([2.0] * 10)

    assert 0.0 == spread(flat, noise_s=0.0, trim=0)
    assert Slope(0.0, (0.0, 0.0)) == slope(flat, tiers=1)


def test_spread_is_the_range_over_the_median_less_the_hosts_noise() -> None:
    times = tier([2.0, 2.0, 2.0, 2.2])

    assert spread(times, noise_s=0.0, trim=0) == pytest.approx(0.1)
    assert spread(times, noise_s=0.1, trim=0) == pytest.approx(0.05)
    assert spread(times, noise_s=0.5, trim=0) == pytest.approx(0.0)


def test_a_hosts_noise_is_the_larger_of_seconds_and_a_share_of_the_median() -> None:
    times = tier([2.0, 2.0, 2.0, 3.0])

    assert spread(times, noise_s=0.1, noise_ratio=0.2, trim=0) == pytest.approx(0.3)
    assert spread(times, noise_s=0.6, noise_ratio=0.2, trim=0) == pytest.approx(0.2)


def test_one_hiccup_is_left_out_of_ten_but_not_of_three() -> None:
    assert spread(tier([2.0] * 9 + [9.0]), noise_s=0.0, trim=1) == pytest.approx(0.0)
    assert spread(tier([2.0, 2.0, 9.0]), noise_s=0.0, trim=1) == pytest.approx(3.5)


def test_a_cost_of_depth_has_a_slope_away_from_zero() -> None:
    found = slope(tier([2.0 + 0.2 * depth for depth in DEPTHS]), tiers=3)

    assert found is not None
    assert distance_from_zero(found) == pytest.approx(0.2 / 2.1, rel=0.01)


def test_noise_alone_seldom_looks_like_a_slope() -> None:
    draw = random.Random(5)
    tiers = [tier([1 + 0.01 * draw.gauss(0, 1) for _ in DEPTHS]) for _ in range(400)]
    alarms = sum(distance_from_zero(found) > 0 for each in tiers if (found := slope(each, tiers=1)))

    assert alarms <= 32  # 5 % of 400 and three standard deviations


def test_all_tiers_together_tell_a_slope_closer_than_each_alone() -> None:
    chance = random.Random(4)
    tiers = [tier([size * chance.uniform(0.8, 1.2) for _ in DEPTHS]) for size in (1.0, 8.0)]
    each = [found for one in tiers if (found := slope(one, tiers=2))]
    joint = joint_slope(tiers)

    assert joint is not None
    assert width(joint) < min(map(width, each))
    assert joint_slope([tier([1.0] * 3)]) is None


def test_few_cells_give_no_slope() -> None:
    assert slope(tier([1.0, 2.0, 3.0]), tiers=1) is None
    assert slope(Tier(8192, tuple(Timing(0.5, 1.0) for _ in range(10))), tiers=1) is None


def test_times_are_scaled_to_the_tier() -> None:
    assert scaled(2.0, prompt_tokens=8000, tier_tokens=8192) == pytest.approx(2.048)
