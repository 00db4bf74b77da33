"""Writers of `engine.gguf.encode`: what they write decodes in the format's own package, and lies close."""

from __future__ import annotations

from itertools import product

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine.errors import ModelFileError
from engine.gguf.encode import encode
from engine.gguf.quants import QuantType, decode, iq2_codewords, iq2_signs, row_bytes

WRITTEN = [t for t in QuantType if t is not QuantType.I32]
BLOCKED = [QuantType.Q8_0, QuantType.Q2_K, QuantType.Q4_K, QuantType.IQ2_XXS]
# Relative RMS error on Gaussian weights; measured 0.0054, 0.259, 0.0702 and 0.327.
GAUSSIAN_ERROR = {
    QuantType.Q8_0: 0.0056,
    QuantType.Q2_K: 0.262,
    QuantType.Q4_K: 0.072,
    QuantType.IQ2_XXS: 0.330,
}

Floats = npt.NDArray[np.float32]


def gaussian(shape: tuple[int, ...], seed: int = 0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.02).astype(np.float32)


def rewritten(values: Floats, type: QuantType, importance: Floats | None = None) -> Floats:
    raw = encode(values, type, importance=importance, threads=1)
    return decode(raw.ravel(), type, values.shape)


def relative_error(values: Floats, found: Floats, weights: Floats | float = 1.0) -> float:
    return float(np.sqrt((weights * (values - found) ** 2).sum() / (weights * values**2).sum()))


finite_rows = hnp.arrays(
    np.float32,
    st.sampled_from([(256,), (3, 256), (2, 2, 512)]),
    elements=st.floats(-60000, 60000, width=32),
    fill=st.sampled_from([0.0, 1.0, -0.25]).map(np.float32),
)


@pytest.mark.parametrize("type", WRITTEN)
@given(values=finite_rows)
@settings(max_examples=40, deadline=None)
def test_what_is_written_decodes_in_the_package_to_the_same_values(type: QuantType, values: Floats) -> None:
    raw = encode(values, type, threads=1)

    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(type)).astype(np.float32)
    assert raw.shape == (*values.shape[:-1], row_bytes(type, values.shape[-1]))
    assert np.array_equal(expected, decode(raw.ravel(), type, values.shape))


@pytest.mark.parametrize("type", BLOCKED)
def test_gaussian_weights_come_back_within_the_error_of_the_format(type: QuantType) -> None:
    values = gaussian((64, 1024))

    assert relative_error(values, rewritten(values, type)) <= GAUSSIAN_ERROR[type]


@pytest.mark.parametrize("type", BLOCKED)
@pytest.mark.parametrize("scale", [1e-1, 1.0, 1e3])
def test_the_error_does_not_depend_on_the_size_of_the_weights(type: QuantType, scale: float) -> None:
    values = gaussian((16, 512), seed=3) * np.float32(scale)

    assert relative_error(values, rewritten(values, type)) <= 1.05 * GAUSSIAN_ERROR[type]


@pytest.mark.parametrize("type", [QuantType.Q2_K, QuantType.Q4_K, QuantType.IQ2_XXS])
def test_importance_moves_the_error_to_columns_that_matter_less(type: QuantType) -> None:
    values = gaussian((32, 512), seed=1)
    importance = np.exp(np.random.default_rng(2).standard_normal(512)).astype(np.float32)

    plain = relative_error(values, rewritten(values, type), importance)
    weighted = relative_error(values, rewritten(values, type, importance), importance)
    assert weighted < 0.93 * plain


@pytest.mark.parametrize("type", [QuantType.Q2_K, QuantType.IQ2_XXS])
def test_columns_without_importance_are_still_approximated(type: QuantType) -> None:
    values = gaussian((8, 512), seed=4)
    importance = np.zeros(512, np.float32)
    importance[::2] = 1

    found = rewritten(values, type, importance)
    assert relative_error(values[:, ::2], found[:, ::2]) < GAUSSIAN_ERROR[type]
    assert relative_error(values[:, 1::2], found[:, 1::2]) < 1.0


@pytest.mark.parametrize("type", [QuantType.Q2_K, QuantType.IQ2_XXS])
def test_importance_of_nothing_at_all_counts_as_even(type: QuantType) -> None:
    values = gaussian((4, 256), seed=6)

    assert np.array_equal(encode(values, type), encode(values, type, importance=np.zeros(256, np.float32)))


def test_each_octet_holds_the_best_codeword_and_signs_for_its_scale() -> None:
    values = gaussian((1, 256), seed=7)
    importance = np.exp(np.random.default_rng(8).standard_normal(256)).astype(np.float32)
    raw = encode(values, QuantType.IQ2_XXS, importance=importance)[0]
    words = np.ascontiguousarray(raw[2:]).view("<u4").reshape(8, 2)
    step = raw[:2].view("<f2").astype(np.float32) * (words[:, 1] >> 28).astype(np.float32) * 0.25
    scale = np.repeat(step + raw[:2].view("<f2").astype(np.float32) * 0.125, 4)
    found = decode(raw, QuantType.IQ2_XXS, (256,)).reshape(32, 8)
    every = (iq2_codewords()[:, None] * iq2_signs()[None]).reshape(-1, 8)  # [32768, 8]

    octets, weights = values.reshape(32, 8), importance.reshape(32, 8)
    chosen = (weights * (octets - found) ** 2).sum(axis=1)
    for i in range(32):
        best = ((octets[i] - scale[i] * every) ** 2 @ weights[i]).min()
        assert chosen[i] <= best * 1.0001


@pytest.mark.parametrize("type", WRITTEN)
def test_zeros_stay_zeros(type: QuantType) -> None:
    values = np.zeros((2, 256), np.float32)

    assert np.array_equal(values, rewritten(values, type))


@pytest.mark.parametrize("type", BLOCKED)
def test_the_number_of_threads_changes_no_byte(type: QuantType) -> None:
    values = gaussian((200, 512), seed=9)

    assert np.array_equal(encode(values, type, threads=1), encode(values, type, threads=3))


@pytest.mark.parametrize("type", [QuantType.Q2_K, QuantType.Q4_K])
def test_weights_of_one_sign_use_the_whole_range_of_codes(type: QuantType) -> None:
    values = np.abs(gaussian((8, 256), seed=11)) + np.float32(0.01)

    for signed in (values, -values):
        assert relative_error(signed, rewritten(signed, type)) < 0.75 * GAUSSIAN_ERROR[type]


def test_bf16_is_rounded_like_the_package_does() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32)
    values = bits.view(np.float32).reshape(16, 256)

    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
    assert np.array_equal(expected, encode(values, QuantType.BF16))


def test_q8_0_lies_at_least_as_close_as_the_package() -> None:
    values = gaussian((64, 512), seed=12)
    package = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)

    theirs = relative_error(values, decode(package.ravel(), QuantType.Q8_0, values.shape))
    assert relative_error(values, rewritten(values, QuantType.Q8_0)) <= theirs * 1.0005


@pytest.mark.parametrize(
    ("type", "bad"), list(product([QuantType.F16, *BLOCKED], [np.nan, np.inf, -np.inf, 7e4, -1e30]))
)
def test_a_value_that_cannot_be_stored_is_refused(type: QuantType, bad: float) -> None:
    values = gaussian((1, 256))
    values[0, 9] = bad

    with pytest.raises(
        ModelFileError, match=rf"{type.name} stores finite values up to 65504, found 1 others"
    ):
        encode(values, type)


def test_floats_are_not_written_as_whole_numbers() -> None:
    with pytest.raises(ModelFileError, match="I32 holds whole numbers"):
        encode(gaussian((1, 256)), QuantType.I32)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_importance_must_be_finite_and_not_negative(bad: float) -> None:
    with pytest.raises(ModelFileError, match="importance holds NaN, infinite or negative numbers"):
        encode(gaussian((1, 256)), QuantType.Q2_K, importance=np.full(256, bad, np.float32))


def test_importance_of_another_width_is_refused() -> None:
    with pytest.raises(
        ModelFileError, match=r"importance has shape \(255,\), allowed is one that broadcasts"
    ):
        encode(gaussian((2, 256)), QuantType.Q2_K, importance=np.ones(255, np.float32))
