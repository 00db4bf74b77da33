"""Early stop: which items belong to which look; a settled set is asked no more and judged the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gates.harness import history
from gates.harness.history import Event
from gates.quality import early
from gates.quality.data import Store
from gates.quality.drive import planned
from gates.quality.items import ItemRecord
from gates.quality.plan import plan
from gates.tests.quality.driving import SEED, driven, judged, settings
from gates.tests.quality.records import answers, side
from gates.tests.quality.scholar import Scholar

ITEMS = 20
SETS = ("mini_arithmetic", "mini_choice")
FOUR = settings(
    sets=list(SETS),
    fast_margins=[0.5, 0.01],
    thinking_margins=[0.5, 0.01],
    fast_items=[ITEMS, ITEMS],
    thinking_items=[0, 0],
    fast_min_scores=[0.0, 0.0],
    thinking_min_scores=[0.0, 0.0],
    fast_mean_tokens=[0, 0],
    thinking_mean_tokens=[0, 0],
    looks=4,
)


def scholar() -> Scholar:
    return Scholar(SETS, ITEMS, seed=SEED)


def asked(records: Sequence[ItemRecord]) -> dict[str, int]:
    return dict(Counter(record.set for record in records if not record.repeat))


def events(folder: Path) -> list[Event]:
    return history.read(folder / "history.jsonl")


def test_each_item_stands_in_the_wave_that_its_look_ends(tmp_path: Path) -> None:
    whole = plan(FOUR, seed=SEED)
    groups = planned(whole, Store.open(tmp_path), roles=("candidate",))
    waves = early.waves(groups, whole)
    choices = [[group for group in wave if group[0].part.set == "mini_choice"] for wave in waves]

    assert [5, 5, 5, 5] == [sum(not group[0].repeat for group in wave) for wave in choices]
    assert [1, 0, 0, 0] == [sum(group[0].repeat > 0 for group in wave) for wave in choices]
    assert sorted(map(id, groups)) == sorted(id(group) for wave in waves for group in wave)


def test_a_settled_set_is_asked_no_more_and_passes_all_the_same(tmp_path: Path) -> None:
    kept = driven(tmp_path / "first", FOUR, scholar())
    records = driven(tmp_path / "second", FOUR, scholar(), baseline=kept)
    remarks = list(history.notes(events(tmp_path / "second"), early.SETTLED))
    measures = {m.id: m for m in judged(tmp_path / "second", FOUR, baseline=kept).measures}

    assert {"mini_arithmetic": ITEMS, "mini_choice": ITEMS} == asked(kept)
    assert {"mini_arithmetic": ITEMS // 2, "mini_choice": ITEMS} == asked(records)
    assert [("mini_arithmetic fast", 2, ITEMS // 2)] == [
        (remark.get("set"), remark.get("look"), remark.get("spared")) for remark in remarks
    ]
    assert "mini_arithmetic fast: pass" in measures["quality.margin_ratio"].note
    assert 0 == measures["quality.missing_count"].value


def test_what_an_interrupted_run_had_settled_stays_settled(tmp_path: Path) -> None:
    kept = driven(tmp_path / "first", FOUR, scholar())
    once = driven(tmp_path / "second", FOUR, scholar(), baseline=kept)
    before = events(tmp_path / "second")
    again = driven(tmp_path / "second", FOUR, scholar(), baseline=kept, before=before)

    assert asked(once) == asked(again)
    assert ITEMS // 2 == early.spared(events(tmp_path / "second"))


def test_nothing_is_settled_without_a_baseline(tmp_path: Path) -> None:
    driven(tmp_path, FOUR, scholar())

    assert 0 == early.spared(events(tmp_path))


def test_nothing_is_settled_between_two_looks() -> None:
    whole = plan(settings(**{**FOUR.values, "fast_margins": [0.9, 0.9]}), seed=SEED)
    kept = side(answers(ITEMS), set="mini_choice")

    assert {"mini_choice fast": 10} == early.settled(whole, kept[:10], kept, look=2)
    assert {} == early.settled(whole, kept[:11], kept, look=2)
