"""The CUDA sources include nothing and state numbers of the launchers again: here they are held equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.device.decode import MOST_ROWS
from engine.kernels import layouts
from engine.kernels.cuda import build, expand, packed
from engine.kernels.ref.packed import CHUNK, PAIRS
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.kernels.triton.route import MOST_USED
from engine.model.published import SPECS
from engine.model.spec import ModelSpec

FOLDER = Path(build.__file__).parent


def defined(source: str) -> dict[str, int]:
    """Numbers that a source defines by name."""
    text = (FOLDER / source).read_text()
    return {name: int(value) for name, value in re.findall(r"^#define (\w+) +(\d+)\b", text, re.MULTILINE)}


@pytest.mark.parametrize(
    ("source", "launcher"),
    [
        (
            "gemv.cu",
            {
                "WARPS": packed.WARPS,
                "TILE": layouts.TILE,
                "PAIRS": PAIRS,
                "COLS": 8,
                "AHEAD": 4,
                "TEAM": 4,
                "GROUPS": 256,
                "COLUMN": 20,
            },
        ),
        (
            "gated.cu",
            {"TEAM": 8, "TEAMS": 2, "TILE": layouts.TILE, "PAIRS": PAIRS, "GROUPS": 256, "COLUMN": 20},
        ),
        ("expand.cu", {"WARPS": expand.WARPS, "COPIES": 16}),
        ("select.cu", {"CHUNK": CHUNK}),
    ],
)
def test_sources_and_launchers_have_the_same_numbers(source: str, launcher: dict[str, int]) -> None:
    assert launcher == defined(source)


def test_gated_unit_asks_for_the_shared_memory_that_its_source_lays_out() -> None:
    n = defined("gated.cu")
    table = 256 * 64
    partial = n["TEAMS"] * 2 * n["TEAM"] * 2 * n["PAIRS"] * n["COLUMN"]
    plan = n["GROUPS"] * (2 + 2 * n["PAIRS"])

    assert (table + partial + plan) * 4 == packed.GATED_SHARED
    assert n["TEAM"] * n["TEAMS"] * 32 == packed.GATED_THREADS
    assert MOST_ROWS * MOST_USED <= n["GROUPS"]


def test_every_choice_that_is_launched_has_its_kernel() -> None:
    kernels = re.findall(r"^CHOOSE\((\d+)\)$", (FOLDER / "select.cu").read_text(), re.MULTILINE)
    sizes = [int(kernel) for kernel in kernels]

    assert sizes == [4 << step for step in range(len(sizes))]
    assert packed.MOST_CANDIDATES == sizes[-1]


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_pages_hold_whole_windows_of_every_ratio(spec: ModelSpec) -> None:
    ratios = [ratio for ratio in spec.ratios if ratio]

    assert all(PAGE_TOKENS % ratio == 0 for ratio in ratios)
