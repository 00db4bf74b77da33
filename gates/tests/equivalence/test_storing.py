"""The gate's own definition of codes and scales against the engine's, for any bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.ref.rows import RowCodec
from engine.kernels.rows import E4M3_BLOCK, FP4_BLOCK
from gates.equivalence.storing import (
    E4M3_FLOOR,
    E4M3_LEVELS,
    FP4_FLOOR,
    FP4_LEVELS,
    INDEX,
    KV,
    defined,
    rows_of,
)
from gates.equivalence.table import CODE_ROWS


@given(words=st.lists(st.integers(0, 2**32 - 1), min_size=KV.nope, max_size=KV.nope))
def test_codes_and_scales_of_any_finite_bits_are_those_of_the_definition(words: list[int]) -> None:
    rows = np.array(words, np.uint32).view(np.float32)[None]
    rows = np.clip(np.nan_to_num(rows, nan=0.5), -1e34, 1e34).astype(np.float32)
    wide = np.concatenate((rows, np.zeros((1, KV.rope), np.float32)), 1)
    kv = RowCodec.kv(KV).pack(torch.from_numpy(wide)).numpy()
    index = RowCodec.index(INDEX).pack(torch.from_numpy(rows[:, : INDEX.width].copy())).numpy()
    codes, scales = defined(rows, E4M3_BLOCK, E4M3_LEVELS, E4M3_FLOOR)
    fours, halves = defined(rows[:, : INDEX.width], FP4_BLOCK, FP4_LEVELS, FP4_FLOOR)

    assert codes.tolist() == kv[:, : KV.nope].tolist()
    assert scales.tolist() == kv[:, KV.scale_at : KV.scale_at + KV.scales].tolist()
    assert (fours[:, ::2] | fours[:, 1::2] << 4).tolist() == index[:, : INDEX.scale_at].tolist()
    assert halves.tolist() == index[:, INDEX.scale_at :].tolist()


@pytest.mark.parametrize("kind", CODE_ROWS)
def test_rows_that_are_hard_to_round_are_finite_seeded_and_different(kind: str) -> None:
    rows = rows_of(kind, 160, 64, 448.0, 7)

    assert np.isfinite(rows).all()
    assert np.array_equal(rows.view(np.uint32), rows_of(kind, 160, 64, 448.0, 7).view(np.uint32))
    assert not np.array_equal(rows.view(np.uint32), rows_of(kind, 160, 64, 448.0, 8).view(np.uint32))
    assert not np.array_equal(rows.view(np.uint32), rows_of("decades", 160, 64, 1.0, 9).view(np.uint32))
