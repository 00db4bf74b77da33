"""Loop and scheduler whole, in thousands of simulated runs; and bugs put into them are found.

`python -m engine.tests.simulation SEED` replays a seed and shrinks it when it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from engine.tests.mutant import Mutant
from engine.tests.simulation.mutants import MUTANTS
from engine.tests.simulation.scenario import Scenario, scenario, shrink
from engine.tests.simulation.world import play

SEEDS = 3_000  # three times as many as find every bug that is put in below
NIGHTLY_SEEDS = 500_000
BLOCK = 1_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of failing steps are part of the game; their stacks are not."""
    logger = logging.getLogger("engine.loop")
    logger.disabled = True
    yield
    logger.disabled = False


def hold(seeds: range) -> None:
    """Play the seeds; the first that fails is shrunk and shown as Python."""
    for seed in seeds:
        wrong = play(scenario(seed))
        if wrong is not None:
            small = shrink(scenario(seed), lambda candidate: play(candidate) is not None)
            pytest.fail(f"seed {seed}: {wrong}\n{small!r}\n{play(small)}")


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_every_run_keeps_order_counts_and_answers(first: int) -> None:
    hold(range(first, first + BLOCK))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + NIGHTLY_SEEDS, 25 * BLOCK))
def test_every_nightly_run_keeps_order_counts_and_answers(first: int) -> None:
    hold(range(first, first + 25 * BLOCK))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_bug_put_in_is_found(mutant: Mutant) -> None:
    with mutant.alive():
        found = next((seed for seed in range(1000) if play(scenario(seed))), None)

    assert found is not None


def test_a_failing_run_shrinks_to_its_core() -> None:
    def fails(candidate: Scenario) -> bool:
        return play(candidate) is not None

    mutant = next(entry for entry in MUTANTS if entry.name == "stop ids are told")
    with mutant.alive():
        seed = next(seed for seed in range(1000) if play(scenario(seed)))
        small = shrink(scenario(seed), fails)
        replayed = play(small)

    assert replayed is not None
    assert (1, frozenset()) == (len(small.visitors), small.faults)


def test_a_seed_is_one_run() -> None:
    assert scenario(7) == scenario(7)
    assert scenario(7) != scenario(8)
