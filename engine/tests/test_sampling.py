"""Drawing a token: limits hold, draws depend on (seed, position) alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.core import Logits, SamplingParams
from engine.errors import NumericsError
from engine.sampling import sample, uniform

LOGITS = arrays.arrays(
    np.float32, st.integers(1, 40), elements=st.floats(-50, 50, width=32) | st.just(-np.inf)
).filter(lambda values: bool(np.isfinite(values).any()))
SEEDS = st.integers(-(2**63), 2**64 - 1)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0.01, 2.0) | st.just(0.0),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 50),
    min_p=st.floats(0.0, 1.0),
)


@given(LOGITS, PARAMS, SEEDS, st.integers(0, 2**20))
def test_a_draw_is_possible_and_repeatable(
    logits: Logits, params: SamplingParams, seed: int, position: int
) -> None:
    token = sample(logits, params, seed=seed, position=position)

    assert np.isfinite(logits[token])
    assert token == sample(logits.copy(), params, seed=seed, position=position)


@given(LOGITS, SEEDS)
def test_temperature_zero_takes_the_largest_and_the_lowest_id_on_ties(logits: Logits, seed: int) -> None:
    token = sample(logits, SamplingParams(temperature=0.0), seed=seed, position=0)

    assert list(logits).index(max(logits)) == token


@given(LOGITS, st.integers(1, 5), SEEDS)
def test_top_k_draws_among_the_k_largest(logits: Logits, top_k: int, seed: int) -> None:
    token = sample(logits, SamplingParams(top_k=top_k), seed=seed, position=3)
    larger = int(np.sum(logits > logits[token]))

    assert larger < top_k


@given(LOGITS, st.floats(0.05, 0.95), SEEDS)
def test_top_p_never_draws_what_lies_behind_the_mass(logits: Logits, top_p: float, seed: int) -> None:
    token = sample(logits, SamplingParams(top_p=top_p), seed=seed, position=3)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    before = float(weights[logits > logits[token]].sum() / weights.sum())

    assert before < top_p + 1e-9


@given(LOGITS, st.floats(0.01, 1.0), SEEDS)
def test_min_p_excludes_what_is_far_below_the_largest(logits: Logits, min_p: float, seed: int) -> None:
    token = sample(logits, SamplingParams(min_p=min_p), seed=seed, position=3)

    assert float(np.exp(float(logits[token]) - float(logits.max()))) >= min_p * (1 - 1e-6)


def test_draws_follow_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    draws = [sample(logits, SamplingParams(), seed=7, position=position) for position in range(4000)]
    shares = np.bincount(draws, minlength=3) / len(draws)

    assert np.abs(shares - [0.5, 0.3, 0.2]).max() < 0.03


@given(SEEDS, st.integers(0, 2**64 - 1))
def test_numbers_are_those_of_numpys_stream(seed: int, position: int) -> None:
    stream = np.random.Philox(key=seed % 2**64, counter=position)

    assert float(stream.random_raw() >> 11) * 2.0**-53 == uniform(seed=seed, position=position)


@given(LOGITS, PARAMS, SEEDS, st.integers(0, 2**20), st.sets(st.integers(0, 39), max_size=3))
def test_a_draw_is_that_of_the_whole_distribution(
    logits: Logits, params: SamplingParams, seed: int, position: int, banned: set[int]
) -> None:
    """Looking at all ids, as the definition does, gives the same one."""
    outside = tuple(token for token in banned if token < logits.size)
    masked = logits.copy()
    masked[list(outside)] = -np.inf
    if not np.isfinite(masked).any():
        return

    assert defined(masked, params, uniform(seed=seed, position=position)) == sample(
        logits, params, seed=seed, position=position, banned=outside
    )


def defined(logits: Logits, params: SamplingParams, point: float) -> int:
    """A draw at a point of [0, 1), id by id."""
    if params.temperature == 0.0:
        return int(np.argmax(logits))
    with np.errstate(over="ignore"):
        weights = np.exp((logits.astype(np.float64) - float(logits.max())) / params.temperature)
    weights[weights < params.min_p] = 0.0
    order = sorted(range(logits.size), key=lambda token: -logits[token])
    kept, mass, whole = set(), 0.0, float(np.cumsum(weights[order])[-1])
    for rank, token in enumerate(order):
        if (params.top_k and rank >= params.top_k) or (params.top_p < 1 and mass >= params.top_p * whole):
            break
        kept.add(token)
        mass += float(weights[token])
    weights[[token for token in range(logits.size) if token not in kept]] = 0.0
    reached, drawable = np.cumsum(weights), [int(token) for token in np.flatnonzero(weights)]
    beyond = (token for token in drawable if reached[token] > point * reached[-1])
    return next(beyond, drawable[-1])


def test_every_seed_and_position_has_a_number_of_its_own() -> None:
    numbers = {uniform(seed=seed, position=position) for seed in range(-20, 20) for position in range(50)}

    assert len(numbers) == 40 * 50
    assert all(0.0 <= number < 1.0 for number in numbers)


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "inf"])
def test_unusable_logits_are_an_error(bad: float) -> None:
    logits = np.array([0.0, bad, 1.0], dtype=np.float32)

    with pytest.raises(NumericsError):
        sample(logits, SamplingParams(), seed=0, position=0)


def test_no_token_left_is_an_error() -> None:
    with pytest.raises(NumericsError):
        sample(np.full(4, -np.inf, dtype=np.float32), SamplingParams(temperature=0.0), seed=0, position=0)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-9])
def test_the_tiniest_temperature_takes_the_likeliest(temperature: float) -> None:
    logits = np.array([0.0, -3e38, 1.0, 1.0, -np.inf], dtype=np.float32)

    assert sample(logits, SamplingParams(temperature=temperature), seed=3, position=1) in (2, 3)
