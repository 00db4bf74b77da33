"""What docs/gates.md and the profiles say could have been seen, against the code that computes it."""

from __future__ import annotations

import re

import pytest

from gates import profile
from gates.harness import paired, power, spending
from gates.harness.paired import Pairs
from gates.harness.provenance import ROOT
from gates.quality.plan import parts

NOISES = (0.0, 0.01, 0.03, 0.06)
TEXT = (ROOT / "docs" / "gates.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d.* / .*) \|$", TEXT, re.MULTILINE)


def shown(n: int, noise: float) -> str:
    """The smallest drop that n pairs show, and the smallest margin that they can keep, in points."""
    changed = round(noise * n / 2)
    limit = paired.drop_limit(Pairs(n, changed, changed, 0))
    return f"{100 * power.detectable_drop(n, noise=noise):.2g} / {100 * limit:.2g}"


@pytest.mark.parametrize(("name", "n", "cells"), ROWS, ids=[row[0] for row in ROWS])
def test_what_could_have_been_seen_is_what_the_code_computes(name: str, n: str, cells: str) -> None:
    assert [shown(int(n), noise) for noise in NOISES] == cells.split(" | "), name


def test_all_sets_and_two_small_ones_are_listed() -> None:
    assert [1319, 14042, 1140, 570, 541, 500, 257, 164, 60, 12] == [int(n) for _, n, _ in ROWS]


def test_the_levels_of_four_looks_are_those_of_the_document() -> None:
    said = re.search(r"four looks have ([\d.]+), ([\d.]+), ([\d.]+) and ([\d.]+) %", TEXT)
    levels = [100 * level for level in spending.levels(4, alpha=0.05)]

    assert said is not None
    assert levels == pytest.approx([float(part) for part in said.groups()], rel=0.03)


@pytest.mark.parametrize("name", profile.names())
def test_every_set_of_a_profile_can_pass_when_nothing_changed(name: str) -> None:
    settings = profile.load(name).table("quality")
    level = spending.levels(settings.count("looks"), alpha=paired.ALPHA)[-1]
    limits = {
        part.name: (part.margin, paired.drop_limit(Pairs(part.items, 0, 0, 0), alpha=level))
        for part in parts(settings)
        if part.margin > 0
    }

    assert {} == {name: ends for name, ends in limits.items() if ends[1] >= ends[0]}
