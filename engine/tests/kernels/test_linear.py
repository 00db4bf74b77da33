"""Matrix products keep a row's bits in any company."""

from __future__ import annotations

import ctypes

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.ref.linear import ROW_BLOCK, Packed, grouped, linear, paired, whole


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60)
@given(
    rows=st.integers(1, 300),
    inner=st.sampled_from([64, 96, 160, 256, 768, 1024]),
    outer=st.integers(1, 300),
    at=st.integers(0, 299),
)
def test_linear_gives_a_row_alone_the_bits_it_has_among_others(
    rows: int, inner: int, outer: int, at: int
) -> None:
    x, weight = _random(1, rows, inner), _random(2, outer, inner)
    at %= rows

    together = linear(x, weight)

    assert (rows, outer) == together.shape
    assert torch.equal(together[at], linear(x[at : at + 1], weight)[0])


@settings(max_examples=60)
@given(
    rows=st.integers(1, 300),
    inner=st.sampled_from([64, 160, 256, 768, 1024]),
    outer=st.integers(256, 700),
    at=st.integers(0, 299),
)
def test_packed_gives_a_row_alone_the_bits_it_has_among_others(
    rows: int, inner: int, outer: int, at: int
) -> None:
    x, columns = _random(1, rows, inner), _random(2, outer, inner).t()
    at %= rows
    assert Packed.packs(columns)
    packed = Packed(columns)

    together = packed.times(x)

    torch.testing.assert_close(together, x @ columns, rtol=1e-4, atol=1e-4)
    assert torch.equal(together[at], packed.times(x[at : at + 1])[0])


def test_only_weights_that_gain_by_it_are_packed() -> None:
    assert not Packed.packs(_random(1, 256, 8))
    assert not Packed.packs(_random(1, 4, 256, 256))
    assert Packed.packs(_random(1, 256, 64))


@given(rows=st.integers(1, 5000))
def test_rows_are_filled_up_by_a_quarter_at_most_or_to_a_block(rows: int) -> None:
    size = whole(rows)

    assert size % ROW_BLOCK == 0
    assert size == whole(size)
    assert 0 <= size - rows < max(ROW_BLOCK, rows / 4)


def test_products_of_every_number_of_rows_up_to_a_chunk_have_few_counts() -> None:
    assert 30 == len({whole(rows) for rows in range(1, 1033)})


@pytest.mark.parametrize("chunk", [256, 512, 1024])
def test_a_chunk_has_the_same_count_alone_and_beside_decoded_tokens(chunk: int) -> None:
    assert {chunk + 8} == {whole(chunk + decoding) for decoding in range(9)}


class _Allocated(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names.split())


def test_products_of_ever_other_rows_keep_no_ever_more_memory() -> None:
    """The library keeps half a MiB for each count of rows that it meets, 45 MiB for these without `whole`."""
    allocated = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if allocated is None:
        pytest.skip("only glibc from 2.33 on says how much it has given out")
    allocated.restype = _Allocated
    packed, x = Packed(_random(1, 136, 264)), _random(2, 1024, 136)
    packed.times(x)
    before = allocated().uordblks
    for rows in range(704, 1024, 4):
        packed.times(x[:rows])

    assert allocated().uordblks - before < 8 * 2**20


@given(rows=st.integers(1, 70), at=st.integers(0, 69))
def test_grouped_equals_one_linear_per_group(rows: int, at: int) -> None:
    x, weight = _random(1, rows, 3, 96), _random(2, 3, 40, 96)
    at %= rows
    columns = weight.transpose(1, 2).contiguous()

    together = grouped(x, columns)

    assert torch.equal(together[at], grouped(x[at : at + 1], columns)[0])
    assert torch.equal(together[:, 1], linear(x[:, 1], weight[1]))


@given(items=st.integers(1, 40), heads=st.integers(1, 9), at=st.integers(0, 39))
def test_paired_equals_one_linear_per_item(items: int, heads: int, at: int) -> None:
    x, right = _random(1, items, heads, 80), _random(2, items, 33, 80)
    at %= items

    together = paired(x, right.transpose(1, 2))

    assert torch.equal(together[at], linear(x[at], right[at]))


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    before = torch.get_num_threads()
    x, weight = _random(1, 513, 256), _random(2, 512, 256)
    packed = Packed(weight.t())
    for product in (packed.times, lambda rows: linear(rows, weight)):
        try:
            torch.set_num_threads(1)
            alone = torch.cat([product(x[at : at + 1]) for at in range(0, 513, 57)])
            torch.set_num_threads(threads)
            together = product(x)
        finally:
            torch.set_num_threads(before)

        assert torch.equal(alone, together[::57])
