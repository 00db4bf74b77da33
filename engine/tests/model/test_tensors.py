"""Checking a file's tensors against the shape that its metadata states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile, TensorInfo
from engine.gguf.quants import QuantType
from engine.model import tensors
from engine.model.spec import ModelSpec
from engine.tests.small import SMALL

Edit = Callable[[dict[str, TensorInfo]], None]


@pytest.fixture
def file(small_path: Path) -> GGUFFile:
    return GGUFFile.open(small_path)


def test_a_file_of_the_recipe_passes_and_states_its_own_shape(file: GGUFFile) -> None:
    spec = ModelSpec.from_metadata(file.metadata)
    tensors.check(file, spec)

    assert replace(SMALL, hc_eps=spec.hc_eps, rms_eps=spec.rms_eps) == spec


def _drop(name: str) -> Edit:
    return lambda found: found.__delitem__(name)


def _change(name: str, **values: object) -> Edit:
    def edit(found: dict[str, TensorInfo]) -> None:
        found[name] = replace(found[name], **values)  # type: ignore[arg-type]

    return edit


def _add(name: str) -> Edit:
    def edit(found: dict[str, TensorInfo]) -> None:
        found[name] = replace(found["output_norm.weight"], name=name)

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        pytest.param(_drop("blk.1.attn_q_a.weight"), ["blk.1.attn_q_a.weight", "is missing"], id="missing"),
        pytest.param(_add("blk.9.attn_norm.weight"), ["blk.9.attn_norm.weight", "4-layer"], id="foreign"),
        pytest.param(
            _change("output.weight", shape=(320, 128)),
            ["output.weight", "(320, 128)", "(320, 256)"],
            id="shape",
        ),
        pytest.param(
            _change("output_norm.weight", type=QuantType.F16),
            ["output_norm.weight", "F16", "allowed are F32"],
            id="type",
        ),
        pytest.param(
            _change("blk.2.ffn_up_exps.weight", type=QuantType.Q4_K),
            ["blk.2.ffn_up_exps.weight", "IQ2_XXS", "Q4_K", "same type"],
            id="unequal_pair",
        ),
        pytest.param(
            _change("blk.0.ffn_gate_tid2eid.weight", type=QuantType.F32),
            ["blk.0.ffn_gate_tid2eid.weight", "allowed are I32"],
            id="table",
        ),
    ],
)
def test_the_first_wrong_tensor_is_named(file: GGUFFile, edit: Edit, words: list[str]) -> None:
    found = dict(file.tensors)
    edit(found)

    with pytest.raises(ModelFileError) as caught:
        tensors.check(replace(file, tensors=found), SMALL)

    assert [] == [word for word in words if word not in str(caught.value)]
