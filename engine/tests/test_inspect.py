"""What fits: the published byte counts, and reports on shapes and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import SettingError
from engine.inspect import (
    bytes_per_token,
    describe,
    fixed_bytes,
    inspect_file,
    parse_size,
    published,
    row_formats,
)
from engine.model.published import SPECS

FLASH = SPECS["v4-flash"]


def test_a_token_of_the_big_model_costs_the_published_bytes() -> None:
    growth = {rows.name: bytes_per_token(FLASH, rows) for rows in row_formats(FLASH)}

    assert {"float32": 13760.0, "bfloat16": 6880.0, "fp8+fp4": 3514.25} == growth


def test_packed_rows_of_the_big_model_have_the_published_sizes() -> None:
    packed = row_formats(FLASH)[-1]

    assert (584, 68) == (packed.attention, packed.index)


def test_a_conversation_of_the_big_model_has_the_published_fixed_part() -> None:
    wide = row_formats(FLASH)[0]
    window = 43 * 128 * 2048

    assert 21 * (65536 + 16384) + 20 * 524288 == fixed_bytes(FLASH, wide) - window


def test_the_two_bit_recipe_has_the_published_bytes() -> None:
    report = published("v4-flash", memory=None)

    assert 86_714_775_900 == report["weight_bytes"]
    assert 47_613_739_008 == report["bytes_by_type"]["IQ2_XXS"]
    assert 77_913 == report["bytes_by_class"]["routed experts"] // 10**6
    assert "other" not in report["bytes_by_class"]


def test_memory_decides_what_fits() -> None:
    caches = published("v4-flash", memory=parse_size("96GiB"))["caches"]
    tight = published("v4-flash", memory=parse_size("80GiB"))["caches"]

    wide, packed = caches[0], caches[-1]
    assert 766_000 < wide["largest_context_tokens"] < 1048576 == packed["largest_context_tokens"]
    assert packed["conversations"]["32768"] > 3 * wide["conversations"]["32768"] * 0.9
    assert [0, 0, 0] == [cache["largest_context_tokens"] for cache in tight]
    assert {0} == set(tight[0]["conversations"].values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("119GiB", 119 * 2**30), ("128GB", 128 * 10**9), (" 1.5 mib ", 3 * 2**19), ("7B", 7)],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert expected == parse_size(text)


@pytest.mark.parametrize("text", ["", "119", "GiB", "-1GiB", "1 2GiB", "1PiB", "1e3MB"])
def test_a_size_without_number_or_unit_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="119GiB"):
        parse_size(text)


def test_an_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingError, match="v4-flash, v4-pro"):
        published("v5", memory=None)


def test_a_file_is_described_by_its_own_numbers(small_path: Path) -> None:
    report = inspect_file(small_path, memory=2**33)

    assert report["weight_bytes"] == sum(report["bytes_by_class"].values())
    assert "other" not in report["bytes_by_class"]
    assert "largest context" in describe(report)
    assert "too small" not in describe(report)


def test_a_memory_too_small_for_the_weights_is_said() -> None:
    assert "too small: weights and system need" in describe(published("v4-flash", memory=64 * 2**30))
