"""Both tables, and the plan that unfolds them: complete, seeded, and every edge with its neighbours."""

from __future__ import annotations

import pytest

from engine.gguf.file import GGUFFile
from engine.model.spec import ModelSpec
from engine.scheduler.scheduler import SchedulerLimits
from gates import profile, registry
from gates.equivalence import cutting, keeping, sharing, table
from gates.equivalence.bench import pair_runs
from gates.equivalence.drive import MODEL
from gates.equivalence.plan import EquivalencePlan, plan
from gates.equivalence.table import FAMILIES, PAIRS, TWINS, Sizes
from gates.equivalence.workbench import edges

PROFILES = ("ci", "nightly", "candidate", "release")


def planned(name: str) -> EquivalencePlan:
    return plan(profile.load(name).table("equivalence"), seed=7)


def test_every_pair_can_be_run_and_has_a_reason() -> None:
    assert [pair.id for pair in PAIRS] == list(pair_runs())
    assert all(pair.reason.endswith(".") and len(pair.reason) > 40 for pair in PAIRS)
    assert all(twin.reason and twin.tolerance >= 0 for twin in TWINS)
    assert all((twin.measure == "exact") == (twin.tolerance == 0) for twin in TWINS)


def test_a_pair_is_exactly_one_function_whatever_else_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "warm", sharing.warm, raising=False)

    assert sharing.warm is pair_runs()["warm"]
    monkeypatch.setattr(cutting, "warm", lambda *_: None, raising=False)
    monkeypatch.setattr(cutting.warm, "__module__", cutting.__name__)  # type: ignore[attr-defined]
    with pytest.raises(LookupError, match=r"warm is a function of gates\.equivalence\.cutting and"):
        pair_runs()
    monkeypatch.undo()
    monkeypatch.delattr(sharing, "warm")
    with pytest.raises(LookupError, match="warm is a function of no room"):
        pair_runs()


def test_every_family_has_pairs_and_a_measure() -> None:
    measures = {measure.id for measure in registry.find("equivalence").measures}

    assert set(FAMILIES) == {pair.family for pair in PAIRS}
    assert {f"equivalence.{family}_differing_count" for family in FAMILIES} <= measures


@pytest.mark.parametrize("name", PROFILES)
def test_a_plan_takes_every_pair_and_twin_and_names_each_case_once(name: str) -> None:
    found = planned(name)
    ids = [case.id for case in found.every]

    assert len(ids) == len(set(ids)) == found.cells
    assert {pair.id for pair in PAIRS} == {case.subject for case in found.every if case.what == "pair"}
    assert {twin.id for twin in TWINS} == {case.subject for case in found.every if case.what == "twin"}
    assert found == planned(name)


@pytest.mark.parametrize("name", PROFILES)
def test_every_edge_of_the_model_is_in_the_table_with_its_neighbours(name: str) -> None:
    spec = ModelSpec.from_metadata(GGUFFile.open(MODEL).metadata)
    wanted = edges(spec, page=spec.window, limits=SchedulerLimits(context=1))
    for subject in ("storage", "cut", "fork"):
        cases = {case.values["at"] for case in planned(name).every if case.subject == subject}

        assert {at + offset for at in wanted.values() for offset in (-1, 0, 1)} <= cases, subject


def test_random_cuts_follow_from_the_seed_and_make_up_the_prompt() -> None:
    sizes = Sizes.of(profile.load("nightly").table("equivalence"), 7)
    other = Sizes.of(profile.load("nightly").table("equivalence"), 8)
    cuts = [case["cuts"] for case in table.pair("random_cuts").cases(sizes).values()]

    assert {sizes.prompt} == {sum(one) for one in cuts}
    assert len(cuts) == len({tuple(one) for one in cuts}) == sizes.random_cuts
    assert cuts != [case["cuts"] for case in table.pair("random_cuts").cases(other).values()]
