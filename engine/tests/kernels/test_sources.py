"""The CUDA sources include nothing and state numbers of the launchers again: here they are held equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.kernels import layouts
from engine.kernels.cuda import build, expand, packed
from engine.kernels.ref.packed import CHUNK, PAIRS
from engine.kernels.triton.compress import PAGE_TOKENS
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
                "COPIES": 16,
            },
        ),
        ("expand.cu", {"WARPS": expand.WARPS, "COPIES": 16}),
        ("select.cu", {"CHUNK": CHUNK}),
    ],
)
def test_sources_and_launchers_have_the_same_numbers(source: str, launcher: dict[str, int]) -> None:
    assert launcher == defined(source)


def test_every_choice_that_is_launched_has_its_kernel() -> None:
    kernels = re.findall(r"^CHOOSE\((\d+)\)$", (FOLDER / "select.cu").read_text(), re.MULTILINE)
    sizes = [int(kernel) for kernel in kernels]

    assert sizes == [4 << step for step in range(len(sizes))]
    assert packed.MOST_CANDIDATES == sizes[-1]


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_pages_hold_whole_windows_of_every_ratio(spec: ModelSpec) -> None:
    ratios = [ratio for ratio in spec.ratios if ratio]

    assert all(PAGE_TOKENS % ratio == 0 for ratio in ratios)
