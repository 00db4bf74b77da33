"""Packed rows: the layout byte by byte, and values that come back with the bits of the round trip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.ref import rounding
from engine.kernels.ref.rows import RowCodec
from engine.kernels.rows import IndexLayout, KvLayout

FLASH_KV, FLASH_INDEX = KvLayout(448, 64), IndexLayout(128)
SHAPES = [
    pytest.param(448, 64, id="v4_flash"),
    pytest.param(128, 32, id="tiny"),
    pytest.param(64, 2, id="least"),
]
WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=192, max_size=192)


def _rows(count: int, width: int) -> Tensor:
    """Rows over nine decades with zeros of both signs, subnormals, exact powers of two and block maxima."""
    random = torch.Generator().manual_seed(1)
    rows = torch.randn(count, width, generator=random) * torch.logspace(-6, 3, count).unsqueeze(1)
    rows[::7, ::5] = 0
    rows[1::7, ::3] = -0.0
    rows[2::7, ::4] = 1e-40
    rows[::11] = torch.exp2(torch.randn(rows[::11].shape, generator=random).mul(6).round())
    rows[3::13, ::32] = 448.0
    rows[4::13, 31::32] = -6.0 * 2.0**20
    return rows


def _bits(x: Tensor) -> Tensor:
    """Zeros of different sign are different bits."""
    return x.contiguous().view(torch.int32)


def _kv_round(x: Tensor, nope: int) -> Tensor:
    return rounding.bf16_tail(rounding.e4m3_round(x, nope), nope)


def test_the_big_models_rows_have_the_published_offsets() -> None:
    assert (448, 7, 456, 584) == (FLASH_KV.scale_at, FLASH_KV.scales, FLASH_KV.tail_at, FLASH_KV.nbytes)
    assert (64, 4, 68) == (FLASH_INDEX.scale_at, FLASH_INDEX.scales, FLASH_INDEX.nbytes)


@pytest.mark.parametrize(("nope", "rope"), SHAPES)
def test_an_attention_row_comes_back_with_the_bits_of_the_round_trip(nope: int, rope: int) -> None:
    codec = RowCodec.kv(KvLayout(nope, rope))
    rows = _rows(400, nope + rope)
    stored = codec.pack(rows)

    assert (400, codec.stored) == tuple(stored.shape)
    assert torch.equal(_bits(_kv_round(rows, nope)), _bits(codec.unpack(stored)))


@pytest.mark.parametrize("width", [32, 64, 128])
def test_an_index_row_comes_back_with_the_bits_of_the_round_trip(width: int) -> None:
    codec = RowCodec.index(IndexLayout(width))
    rows = _rows(400, width)

    assert torch.equal(_bits(rounding.fp4_round(rows)), _bits(codec.unpack(codec.pack(rows))))


@given(words=WORDS)
def test_any_finite_bits_survive_and_packing_twice_gives_the_same_values(words: list[int]) -> None:
    rows = torch.tensor(words, dtype=torch.int64).to(torch.int32).view(torch.float32).view(2, 96)
    rows = rows.nan_to_num(0.5).clamp(-1e34, 1e34)
    kv, index = RowCodec.kv(KvLayout(64, 32)), RowCodec.index(IndexLayout(96))
    first, second = kv.unpack(kv.pack(rows)), index.unpack(index.pack(rows))

    assert torch.equal(_bits(_kv_round(rows, 64)), _bits(first))
    assert torch.equal(_bits(rounding.fp4_round(rows)), _bits(second))
    assert torch.equal(_bits(first), _bits(kv.unpack(kv.pack(first))))
    assert torch.equal(_bits(second), _bits(index.unpack(index.pack(second))))


def test_every_code_of_both_formats_stands_for_its_published_value() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    codes[[127, 255]] = 0  # not numbers
    values = rounding.e4m3_values(codes, torch.tensor([127, 126, 128, 246], dtype=torch.uint8))
    scales = torch.tensor([1.0, 0.5, 2.0, 2.0**119]).repeat_interleave(64)
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    levels = torch.cat((magnitudes, -magnitudes))
    pairs = torch.arange(256, dtype=torch.uint8)
    fours = rounding.fp4_values(pairs, torch.full((16,), 127, dtype=torch.uint8))

    assert torch.equal(_bits(codes.view(torch.float8_e4m3fn).float() * scales), _bits(values))
    assert torch.equal(_bits(levels.repeat(16)), _bits(fours[::2]))
    assert torch.equal(_bits(levels.repeat_interleave(16)), _bits(fours[1::2]))


def test_the_bytes_lie_where_the_layout_says() -> None:
    row = torch.zeros(1, 160)
    row[0, 0], row[0, 127], row[0, 128], row[0, 159] = 448.0, -1.0, 1.0, 2.0
    stored = RowCodec.kv(KvLayout(128, 32)).pack(row)[0].tolist()
    pairs = torch.zeros(1, 64)
    pairs[0, 0], pairs[0, 1], pairs[0, 33] = 6.0, -0.5, 12.0
    index = RowCodec.index(IndexLayout(64)).pack(pairs)[0].tolist()

    assert (0x7E, 127) == (stored[0], stored[128])
    assert [0] * 6 == stored[130:136]
    assert ([0x80, 0x3F], [0x00, 0x40]) == (stored[136:138], stored[198:200])
    assert (0x07 | 0x90, 0x70) == (index[0], index[16])
    assert [127, 128] == index[32:]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_no_number_never_becomes_one(bad: float) -> None:
    rows = torch.ones(2, 160)
    rows[1, 3] = bad
    index = RowCodec.index(IndexLayout(160))
    kv = RowCodec.kv(KvLayout(128, 32))

    for codec in (kv, index):
        found = codec.unpack(codec.pack(rows))
        assert found[0].isfinite().all()
        assert not found[1].isfinite().all()
