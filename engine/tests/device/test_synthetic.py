"""What a synthetic model's contents have to be, so that its steps cost what a real model's do."""

from __future__ import annotations

import pytest
import torch

from engine.device.synthetic import Synthetic
from engine.gguf import quants
from engine.tests.device.small import SMALL


@pytest.mark.parametrize("name", ["ffn_down_exps", "ffn_gate_exps", "attn_q_b", "attn_output_b"])
def test_matrices_keep_the_size_of_what_they_multiply_and_have_no_mean(name: str) -> None:
    """A mean sends all tokens in one direction and the router to the same few experts."""
    source = Synthetic(SMALL, torch.device("cpu"))
    tensor = next(tensor for tensor in source.tensors() if tensor.name == f"blk.0.{name}.weight")

    raw = source.raw(tensor.name).numpy().reshape(-1)
    values = quants.decode(raw, source.type(tensor.name), tensor.shape)

    size = float((values**2).mean() ** 0.5)
    assert size * tensor.shape[-1] ** 0.5 == pytest.approx(1.0, abs=0.05)
    assert abs(float(values.mean())) / size < 0.02
