"""The lines of a profile that a run gives are those that the profile was once given by hand."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from gates import profile
from gates.harness.record import RunFolder
from gates.harness.stats import wilson
from gates.quality import floors, items
from gates.tests.judged import run_record
from gates.tests.quality.driving import settings
from gates.tests.quality.records import answers, side

NAMES = ["mini_arithmetic", "mini_two_steps"]


def said(*records: items.ItemRecord) -> dict[str, list[float]]:
    """The lines as a profile reads them."""
    return tomllib.loads("\n".join(floors.lines(records, settings(sets=NAMES))))


def test_floor_and_length_of_every_set_and_arm_stand_in_the_order_of_the_sets() -> None:
    first = side(answers(20), set=NAMES[0], completion_tokens=11)
    second = side(answers(20, wrong=[3]), set=NAMES[1], completion_tokens=19)
    thought = [replace(one, arm="thinking", completion_tokens=40) for one in second]

    assert {
        "fast_min_scores": [0.75, 0.68],
        "fast_mean_tokens": [11, 19],
        "thinking_min_scores": [0.0, 0.68],
        "thinking_mean_tokens": [0, 40],
    } == said(*second, *thought, *first)


@pytest.mark.parametrize("wrong", [0, 1, 7, 20])
def test_a_floor_is_never_above_what_was_shown(wrong: int) -> None:
    found = said(*side(answers(20, wrong=range(wrong)), set=NAMES[0]))["fast_min_scores"][0]

    assert wilson(20 - wrong, 20, confidence=0.99)[0] - 0.01 < found <= (20 - wrong) / 20


def test_second_answers_the_control_and_lost_items_do_not_count() -> None:
    right = side(answers(20, lost=[0, 1]), set=NAMES[0])
    again = [replace(one, repeat=1, correct=False) for one in right]
    control = [replace(one, server="baseline", correct=False) for one in right]

    assert said(*right) == said(*right, *again, *control)


def test_a_run_without_the_gate_gives_none(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_run(run_record(profile.load("ci"), chosen=["needle"]))

    assert [] == floors.of_run(RunFolder(tmp_path))
