"""Comparing runs: every single bit counts, and the first that differs is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.equivalence.seen import Seen, first_difference, named, values


@given(seed=st.integers(0, 2**32), row=st.integers(0, 3), column=st.integers(0, 4), bit=st.integers(0, 31))
def test_one_bit_anywhere_is_found_and_named(seed: int, row: int, column: int, bit: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, (4, 5), np.uint32)
    place, other = (row, column), bits.copy()
    other[place] ^= np.uint32(1) << np.uint32(bit)
    left, right = ({"logits": one.view(np.float32)} for one in (bits, other))
    found = first_difference(left, right)

    assert first_difference(left, {"logits": bits.copy().view(np.float32)}) is None
    assert found is not None
    assert ("logits", place, 1, bits.size) == (found.tensor, found.index, found.differing, found.size)


def test_zeros_of_both_signs_and_numbers_that_are_none_are_told_apart() -> None:
    zeros = {"x": np.array([0.0, np.nan], np.float32)}
    found = first_difference(zeros, {"x": np.array([-0.0, np.nan], np.float32)})

    assert found is not None
    assert ((0,), "0.0 (0x00000000)", "-0.0 (0x80000000)") == (found.index, found.left, found.right)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({}, id="missing"),
        pytest.param({"x": np.zeros(3, np.float32)}, id="another_shape"),
        pytest.param({"x": np.zeros(2, np.int32)}, id="another_type"),
        pytest.param({"x": np.zeros(2, np.float32), "y": np.zeros(1)}, id="one_more"),
    ],
)
def test_what_is_not_there_or_of_another_kind_differs(other: Seen) -> None:
    assert first_difference({"x": np.zeros(2, np.float32)}, other) is not None


def test_the_first_array_in_order_is_named_and_all_are_counted() -> None:
    one = {"tokens": np.arange(3), "logits": np.zeros((2, 2))}
    other = {"tokens": np.array([0, 9, 8]), "logits": np.ones((2, 2))}
    found = first_difference(named("a", one), named("a", other))

    assert found is not None
    assert ("a tokens", (1,), 2) == (found.tensor, found.index, found.differing)
    assert 7 == values(one)
