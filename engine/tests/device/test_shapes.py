"""What the device path refuses: shapes without kernels, steps and chunks that do not fit, other formats."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.device.cache import DeviceCache
from engine.device.decode import DecodeStep, check_shape
from engine.device.prefill import Prefill
from engine.device.synthetic import Synthetic
from engine.device.weights import DeviceWeights
from engine.errors import EngineError, ModelFileError
from engine.gguf.quants import QuantType
from engine.kernels.ref.packed import ReferenceProducts
from engine.model.published import SPECS
from engine.tests.device.small import SMALL

CPU = torch.device("cpu")
ONE = replace(SMALL, n_layer=1, ratios=(0,), swiglu_limits=(10.0,), n_hash_layer=0)


class OtherRecipe(Synthetic):
    """A source whose routed experts have another format."""

    def type(self, name: str) -> QuantType:
        return QuantType.Q4_K if "ffn_down_exps" in name else super().type(name)


def test_the_published_shape_has_kernels_and_others_are_told_all_that_is_wrong() -> None:
    check_shape(SPECS["v4-flash"])

    with pytest.raises(ModelFileError, match=r"n_expert is 384, no power of two.*run it on the CPU"):
        check_shape(SPECS["v4-pro"])
    with pytest.raises(ModelFileError, match=r"head_dim is 96, no multiple of 256.*hc_count is 2, not 4"):
        check_shape(replace(SMALL, head_dim=96, hc_count=2))


def test_a_tensor_of_another_format_is_named() -> None:
    with pytest.raises(ModelFileError, match=r"blk\.0\.ffn_down_exps\.weight' has type Q4_K.*Q2_K"):
        DeviceWeights.load(ONE, OtherRecipe(ONE, CPU))


@pytest.mark.parametrize("rows", [0, 33])
def test_a_step_has_1_to_32_rows(rows: int) -> None:
    weights = DeviceWeights.load(ONE, Synthetic(ONE, CPU))
    cache = DeviceCache.empty(ONE, CPU, slots=1, pages=1, most=1)

    with pytest.raises(EngineError, match="1 to 32"):
        DecodeStep(weights, cache, ReferenceProducts(), rows)


def test_a_chunk_goes_into_packed_rows_alone() -> None:
    weights = DeviceWeights.load(ONE, Synthetic(ONE, CPU))
    cache = DeviceCache.empty(ONE, CPU, slots=1, pages=1, most=1, storage="wide")

    with pytest.raises(EngineError, match="a cache of wide rows; it writes packed ones alone"):
        Prefill(weights, cache)


@pytest.mark.parametrize(("count", "position"), [(0, 0), (129, 0), (2, 127), (1, -1)])
def test_a_chunk_stays_within_the_pages_of_its_sequence(count: int, position: int) -> None:
    weights = DeviceWeights.load(ONE, Synthetic(ONE, CPU))
    prefill = Prefill(weights, DeviceCache.empty(ONE, CPU, slots=1, pages=1, most=1))

    with pytest.raises(EngineError, match="within the 128"):
        prefill.run(0, [0] * count, position)
