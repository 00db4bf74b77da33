"""Weights from a mapped file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile
from engine.gguf.quants import QuantType
from engine.weights.local import LocalWeights


def test_tensors_come_decoded_with_the_input_dimension_last(small_path: Path) -> None:
    file = GGUFFile.open(small_path)
    weights = LocalWeights(file)

    assert (4, 256, 256) == weights.tensor("blk.0.ffn_gate_exps.weight").shape
    assert torch.float32 == weights.tensor("output.weight").dtype
    assert torch.int32 == weights.tensor("blk.0.ffn_gate_tid2eid.weight").dtype
    assert QuantType.Q2_K == weights.type("blk.1.ffn_down_exps.weight")
    assert torch.equal(torch.from_numpy(file.array("output.weight")), weights.tensor("output.weight"))


def test_an_unknown_name_is_an_error_of_the_file(small_path: Path) -> None:
    weights = LocalWeights(GGUFFile.open(small_path))

    with pytest.raises(ModelFileError, match=r"blk\.0\.nothing"):
        weights.tensor("blk.0.nothing")
