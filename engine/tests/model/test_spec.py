"""Reading a model's shape from metadata."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from engine.errors import ModelFileError
from engine.gguf.quants import QuantType, row_bytes
from engine.model.published import SPECS
from engine.model.spec import ModelSpec
from engine.model.tensors import expected
from fixtures.tiny.recipe import tensors as recipe
from fixtures.tiny.spec import TINY

FLASH, PRO = SPECS["v4-flash"], SPECS["v4-pro"]


@pytest.mark.parametrize("spec", [FLASH, PRO, TINY], ids=["flash", "pro", "tiny"])
def test_a_shape_survives_the_trip_through_metadata(spec: ModelSpec) -> None:
    assert spec == ModelSpec.from_metadata(spec.to_metadata())


def test_the_big_models_files_have_the_published_tensors_and_bytes() -> None:
    entries = list(recipe(FLASH))
    allowed = {tensor.name: tensor.types for tensor in expected(FLASH)}
    size = sum(prod(shape[:-1]) * row_bytes(kind, shape[-1]) for _, shape, kind in entries)

    assert 1328 == len(entries) == len(allowed)
    assert all(kind in allowed[name] for name, _, kind in entries)
    assert 86_714_775_900 == size


def test_the_draft_modules_extra_array_entry_is_left_out() -> None:
    meta = FLASH.to_metadata()
    meta["deepseek4.attention.compress_ratios"] = [*FLASH.ratios, 0]

    assert FLASH.ratios == ModelSpec.from_metadata(meta).ratios


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("general.architecture", "llama", ["'llama'", "'deepseek4'"]),
        ("deepseek4.block_count", 4.0, ["4.0", "a whole number"]),
        ("deepseek4.block_count", True, ["True", "a whole number"]),
        ("deepseek4.block_count", 10**9, ["1000000000", "from 1 to 1024"]),
        ("deepseek4.attention.head_count_kv", 8, ["8", "1"]),
        ("deepseek4.attention.value_length", 128, ["128", "160"]),
        ("deepseek4.attention.compress_ratios", [0, 4], ["2 entries", "5 layers"]),
        ("deepseek4.attention.compress_ratios", [0, 4, 3, 4, 32], ["found 3", "65536"]),
        ("deepseek4.attention.compress_ratios", "0,4", ["'0,4'", "an array of numbers"]),
        ("deepseek4.swiglu_clamp_exp", [0.0] * 5, ["0.0", "positive"]),
        ("deepseek4.rope.dimension_count", 160, ["160", "even number below"]),
        ("deepseek4.attention.output_group_count", 3, ["3", "divisor of head_count 8"]),
        ("deepseek4.attention.indexer.key_length", 96, ["96", "power of two"]),
        ("deepseek4.expert_used_count", 9, ["9", "at most expert_count 8"]),
        ("deepseek4.hash_layer_count", 6, ["6", "at most block_count 5"]),
        ("deepseek4.rope.freq_base", float("nan"), ["nan", "1e+12"]),
        ("deepseek4.rope.scaling.type", "linear", ["'linear'", "'yarn'"]),
        ("deepseek4.expert_weights_norm", 1, ["1", "True"]),
        ("deepseek4.expert_gating_func", 1, ["1", "4"]),
        ("deepseek4.expert_group_count", 8, ["8", "0 or no such key"]),
        ("deepseek4.hyper_connection.sinkhorn_iterations", 10**6, ["1000000", "1000"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(key: str, value: object, words: list[str]) -> None:
    meta = TINY.to_metadata() | {key: value}

    with pytest.raises(ModelFileError) as caught:
        ModelSpec.from_metadata(meta)

    assert [] == [word for word in [key.removeprefix("deepseek4."), *words] if word not in str(caught.value)]


@pytest.mark.parametrize("key", sorted(set(TINY.to_metadata()) - {"general.name"}))
def test_a_missing_key_is_named(key: str) -> None:
    meta = TINY.to_metadata()
    del meta[key]

    with pytest.raises(ModelFileError, match=f"metadata key {key} is missing"):
        ModelSpec.from_metadata(meta)


def test_a_row_width_that_the_roundings_cannot_cut_into_blocks_is_refused() -> None:
    meta = replace(TINY, head_dim=150).to_metadata()

    with pytest.raises(
        ModelFileError, match=r"key_length: found 150, allowed is a multiple of 64 plus the 32"
    ):
        ModelSpec.from_metadata(meta)


def test_numbers_may_come_as_whole_numbers_where_a_fraction_is_meant() -> None:
    meta = TINY.to_metadata() | {"deepseek4.rope.freq_base": 10000}

    assert 10000.0 == ModelSpec.from_metadata(meta).rope_base


def test_the_recipes_types_are_the_q2_recipe() -> None:
    by_suffix = {name.rsplit(".", 2)[-2]: kind for name, _, kind in recipe(FLASH)}

    assert QuantType.IQ2_XXS == by_suffix["ffn_gate_exps"] == by_suffix["ffn_up_exps"]
    assert QuantType.Q2_K == by_suffix["ffn_down_exps"]
