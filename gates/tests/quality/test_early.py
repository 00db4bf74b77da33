"""Early stop: which items belong to which look, and that a settled set is asked no more and judged the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gates.harness import history
from gates.harness.baseline import Baseline
from gates.quality import early, items
from gates.quality.check import check
from gates.quality.data import Store
from gates.quality.drive import drive, planned
from gates.quality.early import SETTLED
from gates.quality.items import ItemRecord
from gates.quality.plan import QualityPlan, plan
from gates.tests.quality.driving import SEED, rig_of, settings
from gates.tests.quality.records import answers, side
from gates.tests.quality.scholar import Scholar

ITEMS = 40
FOUR = settings(
    sets=["mini_arithmetic", "mini_choice"],
    margins=[0.5, 0.01],
    fast_items=[ITEMS, ITEMS],
    thinking_items=[0, 0],
    fast_min_scores=[0.0, 0.0],
    thinking_min_scores=[0.0, 0.0],
    fast_mean_tokens=[0, 0],
    thinking_mean_tokens=[0, 0],
    looks=4,
)


def test_each_item_stands_in_the_wave_that_its_look_ends(tmp_path: Path) -> None:
    asked = plan(FOUR, seed=SEED)
    groups = planned(asked, Store.open(tmp_path), roles=("candidate",))
    waves = early.waves(groups, asked)
    sizes = [
        sum(group[0].part.set == "mini_choice" and not group[0].repeat for group in wave) for wave in waves
    ]

    assert [10, 10, 10, 10] == sizes
    assert [2, 0, 0, 0] == [sum(group[0].repeat > 0 for group in wave) for wave in waves]
    assert sorted(map(id, groups)) == sorted(id(group) for wave in waves for group in wave)


def driven(
    folder: Path, kept: list[ItemRecord], asked: QualityPlan
) -> tuple[list[ItemRecord], list[history.Event]]:
    """The records and events of a drive against an honest server, held against these records."""
    baseline = Baseline({}, {"quality": [items.as_json(one) for one in kept]}) if kept else None
    with rig_of(folder, [Scholar()]) as rig:
        rig.baseline = baseline
        drive(asked, rig)
    return items.read(folder / "items.jsonl"), history.read(folder / "history.jsonl")


def test_a_settled_set_is_asked_no_more_and_passes_all_the_same(tmp_path: Path) -> None:
    asked = plan(FOUR, seed=SEED)
    kept, _ = driven(tmp_path / "first", [], asked)
    records, events = driven(tmp_path / "second", kept, asked)
    counts = {
        name: sum(r.set == name and not r.repeat for r in records)
        for name in ("mini_arithmetic", "mini_choice")
    }
    remarks = [
        (note.get("set"), note.get("look"), note.get("spared")) for note in history.notes(events, SETTLED)
    ]
    found = check(
        [*events, *history.items(tmp_path / "second" / "items.jsonl")],
        FOUR,
        Baseline({}, {"quality": [items.as_json(one) for one in kept]}),
    )
    measures = {measure.id: measure for measure in found.measures}

    assert {"mini_arithmetic": 20, "mini_choice": ITEMS} == counts
    assert [("mini_arithmetic fast", 2, 20)] == remarks
    assert "mini_arithmetic fast: pass" in measures["quality.margin_ratio"].note
    assert 0 == measures["quality.missing_count"].value


def test_what_an_interrupted_run_had_settled_stays_settled(tmp_path: Path) -> None:
    asked = plan(FOUR, seed=SEED)
    kept, _ = driven(tmp_path / "first", [], asked)
    driven(tmp_path / "second", kept, asked)
    before = history.read(tmp_path / "second" / "history.jsonl")
    with rig_of(tmp_path / "second", [Scholar()], before=before) as rig:
        rig.baseline = Baseline({}, {"quality": [items.as_json(one) for one in kept]})
        drive(asked, rig)
    events = history.read(tmp_path / "second" / "history.jsonl")

    assert ITEMS // 2 == early.spared(events)
    assert ITEMS + ITEMS // 2 == sum(
        not record.repeat for record in items.read(tmp_path / "second" / "items.jsonl")
    )


def test_a_part_of_a_run_and_a_run_without_a_baseline_settle_nothing(tmp_path: Path) -> None:
    asked = plan(FOUR, seed=SEED)
    records, events = driven(tmp_path, [], asked)

    assert 2 * ITEMS == sum(not record.repeat for record in records)
    assert 0 == early.spared(events)


def test_nothing_is_settled_between_two_looks() -> None:
    asked = replace(plan(FOUR, seed=SEED), margins={"mini_arithmetic": 0.9, "mini_choice": 0.9})
    kept = side(answers(ITEMS), set="mini_choice")

    assert {"mini_choice fast": 20} == early.settled(asked, kept[:20], kept, look=2)
    assert {} == early.settled(asked, kept[:21], kept, look=2)
