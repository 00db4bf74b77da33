"""Decoders of `engine.gguf.quants` against the format's own package, bit for bit."""

from __future__ import annotations

import subprocess
import sys

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelFileError
from engine.gguf.quants import QuantType, block, decode, iq2_codewords, iq2_signs, row_bytes

FLOATING = [t for t in QuantType if t is not QuantType.I32]


def package_decode(raw: npt.NDArray[np.uint8], type: QuantType) -> npt.NDArray[np.float32]:
    """What the `gguf` package reads from the same bytes."""
    with np.errstate(all="ignore"):
        return np.ravel(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(type))).astype(np.float32)


def random_blocks(type: QuantType, count: int, seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count * block(type).nbytes, dtype=np.uint8)


@pytest.mark.parametrize("type", FLOATING)
@pytest.mark.parametrize("count", [1, 7, 1024, 1025, 5000])
def test_random_blocks_decode_to_the_bits_of_the_package(type: QuantType, count: int) -> None:
    raw = random_blocks(type, count, seed=count)

    expected = package_decode(raw, type).view(np.uint32)
    actual = decode(raw, type, (count * block(type).values,)).view(np.uint32)
    assert np.array_equal(expected, actual)


@pytest.mark.parametrize("type", FLOATING)
@given(data=st.data())
@settings(deadline=None)
def test_any_block_decodes_to_the_bits_of_the_package(type: QuantType, data: st.DataObject) -> None:
    nbytes = block(type).nbytes
    raw = np.frombuffer(data.draw(st.binary(min_size=nbytes, max_size=nbytes)), np.uint8)

    expected = package_decode(raw, type).view(np.uint32)
    actual = decode(raw, type, (block(type).values,)).view(np.uint32)
    assert np.array_equal(expected, actual)


def test_whole_numbers_decode_to_themselves() -> None:
    values = np.array([[0, -1], [2**31 - 1, -(2**31)]], np.int32)

    actual = decode(values.view(np.uint8).ravel(), QuantType.I32, (2, 2))

    assert actual.dtype == np.int32
    assert np.array_equal(values, actual)


@pytest.mark.parametrize("type", FLOATING)
def test_a_stack_of_matrices_decodes_row_by_row(type: QuantType) -> None:
    raw = random_blocks(type, 2 * 3 * 4, seed=5)
    width = 4 * block(type).values

    stacked = decode(raw, type, (2, 3, width))
    rows = [decode(row, type, (width,)) for row in raw.reshape(6, -1)]

    assert stacked.shape == (2, 3, width)
    assert np.array_equal(np.stack(rows).view(np.uint32), stacked.reshape(6, width).view(np.uint32))


def test_the_decoded_array_is_new_and_writable() -> None:
    raw = random_blocks(QuantType.F32, 4, seed=1)
    raw.setflags(write=False)

    values = decode(raw, QuantType.F32, (4,))
    values[:] = 0

    assert raw.any()


@pytest.mark.parametrize("type", list(QuantType))
def test_block_sizes_are_those_of_the_package(type: QuantType) -> None:
    values, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type)]

    assert (values, nbytes) == (block(type).values, block(type).nbytes)
    assert row_bytes(type, 3 * values) == 3 * nbytes


def test_the_codebook_and_signs_are_those_of_the_package() -> None:
    grid = gguf.quants.IQ2_XXS
    grid.init_grid()  # type: ignore[no-untyped-call]
    assert grid.grid is not None
    bits = np.unpackbits(np.frombuffer(grid.ksigns, np.uint8)[:, None], axis=1, bitorder="little")

    assert np.array_equal(grid.grid.reshape(256, 8), iq2_codewords())
    assert np.array_equal(1 - 2.0 * bits, iq2_signs())


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        iq2_codewords()[0, 0] = 1


@pytest.mark.parametrize("type", [QuantType.Q8_0, QuantType.Q2_K, QuantType.Q4_K, QuantType.IQ2_XXS])
def test_a_row_of_part_of_a_block_is_refused(type: QuantType) -> None:
    with pytest.raises(ModelFileError, match=rf"{type.name} holds a multiple of {block(type).values} values"):
        row_bytes(type, block(type).values + 1)


def test_bytes_that_do_not_fit_the_shape_are_refused() -> None:
    with pytest.raises(
        ModelFileError, match=r"Q8_0 data of shape \(2, 32\) is 68 flat bytes, found uint8 \(34,\)"
    ):
        decode(np.zeros(34, np.uint8), QuantType.Q8_0, (2, 32))


def test_the_room_needs_numpy_alone() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['gguf', 'torch', 'tokenizers', 'msgspec']));"
        "import engine.gguf.file, engine.gguf.encode"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (finished.returncode, finished.stderr) == (0, "")
