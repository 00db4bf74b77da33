"""From item records to the measures of the gate: verdicts, notes, tables, and the same over merged runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates import registry
from gates.errors import CheckError
from gates.harness.baseline import Baseline
from gates.harness.history import ITEM, Event
from gates.harness.paired import Pairs, drop_limit
from gates.harness.verdict import Judgement, Measure
from gates.profile import Settings
from gates.quality import items
from gates.quality.check import compared
from gates.quality.items import ItemRecord
from gates.quality.mini import sets as mini
from gates.tests.quality.records import answers, record, side

N = 300
LIMITS = {
    "max_margin_ratio": 1.0,
    "max_differing_count": 0,
    "max_noise_ratio": 0.05,
    "max_detectable_ratio": 1.0,
    "min_score_ratio": 0.0,
}
TABLE: dict[str, Any] = {
    "sets": ["gsm8k", "mmlu"],
    "looks": 1,
    "max_fault_ratio": 0.005,
    "max_truncated_ratio": 0.01,
    **{f"{arm}_items": [300, 300] for arm in ("fast", "thinking")},
    **{f"{arm}_margins": [0.02, 0.0] for arm in ("fast", "thinking")},
    **{f"{arm}_min_scores": [0.0, 0.0] for arm in ("fast", "thinking")},
    **{f"{arm}_mean_tokens": [0, 0] for arm in ("fast", "thinking")},
    **{f"{arm}_max_tokens": 100 for arm in ("fast", "thinking")},
    **LIMITS,
}

PLANNED: dict[str, Any] = {"mini_arithmetic": {"fast": N}}


@pytest.fixture(autouse=True)
def quality_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "GATES", (registry.find("quality"),))


def twice(records: Sequence[ItemRecord]) -> list[ItemRecord]:
    """The records, and fifty of them asked once more with the same replies."""
    return [*records, *(replace(one, repeat=1) for one in records[:50])]


def remark(what: str, fields: Any) -> Event:
    return Event(-1, 0.0, "info", -1, what, fields)


def judged(
    records: Sequence[ItemRecord],
    kept: Sequence[ItemRecord],
    *,
    planned: Any = None,
    table: dict[str, Any] = TABLE,
) -> Judgement:
    events = [
        remark("sets_planned", {"items": planned or {"gsm8k": {"fast": N}}}),
        *(remark(ITEM, items.as_json(one)) for one in records),
    ]
    baseline = Baseline({}, {"quality": [items.as_json(one) for one in kept]}) if kept else None
    return compared(events, Settings("quality", table), baseline)


def measures(judgement: Judgement) -> dict[str, Measure]:
    return {measure.id.removeprefix("quality."): measure for measure in judgement.measures}


def test_an_unchanged_build_holds_every_claim() -> None:
    found = measures(judged(twice(side(answers(N))), side(answers(N))))

    assert {"pass"} == {
        measure.verdict.value for name, measure in found.items() if name != "detectable_ratio"
    }
    assert "gsm8k fast: pass, lost at most 0.89%, margin 2.00%" in found["margin_ratio"].note
    assert "would have seen a drop of 2.2%" in found["margin_ratio"].note
    assert (0, "no set of this profile has a margin of 0") == (
        found["differing_count"].n,
        found["differing_count"].note,
    )


def test_a_worse_build_fails_with_the_items_that_it_lost() -> None:
    judgement = judged(twice(side(answers(N, wrong=range(20)))), side(answers(N)))
    found = measures(judgement)

    assert "fail" == found["margin_ratio"].verdict
    assert ["gsm8k/0 (fast)"] == [f.where for f in judgement.findings][:1]
    assert ("1", "2", "character 5: '1' became '2'") == (
        judgement.findings[0].expected,
        judgement.findings[0].found,
        judgement.findings[0].detail,
    )


def test_a_failing_set_is_worth_more_than_an_unknown_one() -> None:
    records = [*twice(side(answers(N, wrong=range(20)))), *side(answers(5), set="mmlu")]
    table = TABLE | {"fast_margins": [0.02, 0.01]}
    planned = {"gsm8k": {"fast": N}, "mmlu": {"fast": 5}}
    kept = [*side(answers(N)), *side(answers(5), set="mmlu")]

    assert "fail" == measures(judged(records, kept, planned=planned, table=table))["margin_ratio"].verdict


def test_a_first_run_has_nothing_to_compare_with_and_may_become_a_baseline() -> None:
    found = measures(judged(twice(side(answers(N))), []))

    assert ("unknown", 0) == (found["margin_ratio"].verdict, found["margin_ratio"].n)
    assert "there is no baseline" in found["margin_ratio"].note


def test_what_many_sets_lack_is_said_before_their_names() -> None:
    names = list(mini.DRAWN)
    lists = {key: [value[0]] * len(names) for key, value in TABLE.items() if isinstance(value, list)}
    records = [one for name in names for one in side(answers(5), set=name)]
    planned = {name: {"fast": 5} for name in names}
    found = measures(judged(records, [], planned=planned, table={**TABLE, **lists, "sets": names}))
    said, listed = found["margin_ratio"].note[:240], found["margin_ratio"].note[-40:]

    assert said.startswith("unknown, there is no baseline: name one to compare with (--control-url, ")
    assert "promote a run of this model (nox -s baseline)" in said
    assert f"{names[-1]} fast)" in listed


def test_a_run_without_enough_evidence_is_unknown_and_no_baseline() -> None:
    found = measures(judged(twice(side(answers(20))), side(answers(20)), planned={"gsm8k": {"fast": 20}}))

    assert "unknown" == found["margin_ratio"].verdict
    assert found["margin_ratio"].n > 0


def test_nothing_asked_twice_leaves_the_noise_unknown() -> None:
    found = measures(judged(side(answers(N)), side(answers(N))))["noise_ratio"]

    assert ("unknown", 0) == (found.verdict, found.n)
    assert "nothing was asked twice" in found.note


def test_a_build_that_contradicts_itself_breaks_its_own_claim() -> None:
    again = [record(place, correct=place % 2 == 0, repeat=1) for place in range(50)]

    assert "fail" == measures(judged([*side(answers(N)), *again], side(answers(N))))["noise_ratio"].verdict


def test_where_nothing_may_change_another_reply_fails() -> None:
    kept = side(answers(N), set="mmlu")
    now = [*kept[:-1], replace(kept[-1], text="#### 1 ")]
    judgement = judged(twice(now), kept, planned={"mmlu": {"fast": N}})

    assert ("fail", 1.0) == (
        measures(judgement)["differing_count"].verdict,
        measures(judgement)["differing_count"].value,
    )
    assert ["mmlu/299 (fast)"] == [f.where for f in judgement.findings]


def test_a_record_without_a_plan_or_with_a_foreign_set_judges_nothing() -> None:
    events = [remark(ITEM, items.as_json(record(0)))]
    found = compared(events, Settings("quality", TABLE), None)

    assert {"unknown"} == {
        m.verdict.value for m in found.measures if m.id.endswith(("margin_ratio", "differing_count"))
    }
    with pytest.raises(CheckError, match=r"'other' \(fast\), which the profile does not ask"):
        judged([], [], planned={"other": {"fast": 1}})


KEPT = side([place % 19 != 5 for place in range(N)])
WHOLE = twice(side([place % 17 != 3 for place in range(N)]))


@pytest.fixture(scope="module")
def whole() -> Judgement:
    """What is said of a run that was made in one."""
    return judged(WHOLE, KEPT)


@settings(max_examples=8, deadline=None)
@given(parts=st.integers(1, 5), source=st.randoms(use_true_random=False))
def test_shards_in_any_number_and_order_give_the_verdict_of_one_run(
    whole: Judgement, parts: int, source: random.Random
) -> None:
    shuffled = list(WHOLE)
    source.shuffle(shuffled)
    shards = [shuffled[part::parts] for part in range(parts)]

    assert whole == judged([one for shard in shards for one in shard], KEPT)


def test_the_tables_name_changed_items_drift_and_categories() -> None:
    now = [
        replace(one, category=f"kind {place % 3}", completion_tokens=30, seconds=1.5)
        for place, one in enumerate(side(answers(N, wrong=[4, 5])))
    ]
    kept = [
        replace(one, completion_tokens=20 + place % 2)
        for place, one in enumerate(side(answers(N, wrong=[5, 6])))
    ]
    judgement = judged(twice(now), kept)
    tables = {table.name: table for table in judgement.tables}
    changed = [
        dict(zip(tables["changed-items"].header, row, strict=True)) for row in tables["changed-items"].rows
    ]
    drift = {row[2]: row for row in tables["drift"].rows}
    (sets,) = (dict(zip(tables["sets"].header, row, strict=True)) for row in tables["sets"].rows)

    assert [("gsm8k/4", "worse", "#### 1", "#### 2"), ("gsm8k/6", "better", "#### 2", "#### 1")] == [
        (row["item"], row["change"], row["baseline"], row["candidate"]) for row in changed
    ]
    assert (N, 20.5, 30.0, "+46.3%") == drift["tokens of the reply"][3:7]
    assert "characters of reasoning" not in drift
    assert [("kind 0", 100, 99.0, 100.0), ("kind 1", 100, 100.0, 99.0), ("kind 2", 100, 99.0, 99.0)] == [
        row[2:6] for row in tables["categories"].rows
    ]
    assert (1, 1, 2.0, 50) == (sets["worse"], sets["better"], sets["margin %"], sets["asked twice"])
    assert all(table.title for table in judgement.tables)


def test_ordinary_and_harder_items_of_a_small_set_are_counted_apart_beside_its_floor() -> None:
    kinds = ["one_step", "one_step", "larger_numbers"]
    now = [
        replace(one, category=kinds[place % 3])
        for place, one in enumerate(side(answers(N, wrong=[0, 2, 5]), set="mini_arithmetic"))
    ]
    table = TABLE | {"sets": ["mini_arithmetic", "mmlu"], "fast_min_scores": [0.9, 0.0]}
    judgement = judged(now, side(answers(N), set="mini_arithmetic"), planned=PLANNED, table=table)
    tables = {table.name: table for table in judgement.tables}
    (row,) = (dict(zip(tables["sets"].header, row, strict=True)) for row in tables["sets"].rows)

    assert (90.0, 99.5, 98.0) == (row["least %"], row["ordinary %"], row["harder %"])
    assert ["larger_numbers (harder)", "one_step"] == [row[2] for row in tables["categories"].rows]


def test_why_a_reply_is_wrong_stands_beside_it() -> None:
    why = "no program that defines double"
    now = [replace(one, note="" if one.correct else why) for one in side(answers(N, wrong=range(60)))]
    judgement = judged(now, side(answers(N)))
    (changed,) = (table for table in judgement.tables if table.name == "changed-items")

    assert why == changed.rows[0][changed.header.index("why")]
    assert f"2 ({why})" == judgement.findings[0].found


@pytest.mark.parametrize(
    ("lost", "value"),
    [
        pytest.param(
            0, max(drop_limit(Pairs(N, 1, 0, 0)) / 0.02, drop_limit(Pairs(N, 0, 0, 0)) / 0.1), id="pass"
        ),
        pytest.param(30, drop_limit(Pairs(N, 30, 0, 0)) / 0.1, id="one_fails"),
    ],
)
def test_the_value_of_the_claim_is_that_of_its_worst_set(lost: int, value: float) -> None:
    now = [*side(answers(N, wrong=[0])), *side(answers(N, wrong=range(lost)), set="mmlu")]
    kept = [*side(answers(N)), *side(answers(N), set="mmlu")]
    table = TABLE | {"fast_margins": [0.02, 0.1]}
    planned = {"gsm8k": {"fast": N}, "mmlu": {"fast": N}}
    found = measures(judged(twice(now), kept, planned=planned, table=table))

    assert value == pytest.approx(found["margin_ratio"].value)
    assert ("fail" if lost else "pass") == found["margin_ratio"].verdict
    assert (N - max(1, lost)) / N == found["score_ratio"].value


def test_noise_counts_changes_in_both_directions_over_all_sets() -> None:
    now = [*side(answers(N, wrong=range(10))), *side(answers(N), set="mmlu")]
    again = [record(place, place < 10, repeat=1) for place in range(8, 12)]
    again += [replace(one, repeat=1) for one in now[N : N + 36]]
    found = measures(judged([*now, *again], now, planned={"gsm8k": {"fast": N}, "mmlu": {"fast": N}}))

    assert (0.1, 40) == (found["noise_ratio"].value, found["noise_ratio"].n)


def test_a_changed_item_with_a_known_fault_says_so() -> None:
    kept = [record(337, set="ifeval"), *side(answers(N), set="ifeval")[1:N]]
    now = [record(337, False, set="ifeval"), *kept[1:]]
    table = TABLE | {"sets": ["gsm8k", "ifeval"], "fast_margins": [0.02, 0.02]}
    tables = {
        t.name: t for t in judged(twice(now), kept, planned={"ifeval": {"fast": N}}, table=table).tables
    }

    assert ["asks for 400 words in the prompt and for 336 in the arguments"] == [
        row[-1] for row in tables["changed-items"].rows
    ]


def test_the_forest_plot_is_sound_svg_that_names_every_compared_set() -> None:
    judgement = judged(twice(side(answers(N, wrong=range(20)))), side(answers(N)))
    (picture,) = judgement.pictures
    texts = [text.text or "" for text in Xml.fromstring(picture.svg).iter() if text.tag.endswith("text")]

    assert "gsm8k fast" in texts
    assert any(text.startswith("fail, -6.67% of 300") for text in texts)
    assert () == judged(side(answers(N)), []).pictures
