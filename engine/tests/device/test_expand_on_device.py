"""Experts expanded on a device are the decoded ones, each value rounded twice to float16."""

from __future__ import annotations

import pytest
import torch

from engine.gguf.quants import QuantType
from engine.kernels import layouts
from engine.kernels.cuda.expand import Expander
from engine.kernels.layouts import IQ2
from engine.tests.kernels.test_layouts import random_blocks

pytestmark = pytest.mark.device


def test_expanded_experts_are_the_decoded_ones() -> None:
    planes = layouts.split_iq2(random_blocks(QuantType.IQ2_XXS, (5, 96, 768), 1))
    stack = IQ2(planes.words.cuda(), (planes.scales * 0.001).cuda())
    out = torch.full((3, 96, 768), torch.nan, dtype=torch.float16, device="cuda")
    Expander(torch.device("cuda", 0)).expand(stack, 2, out)
    expected = 64 * layouts.decode_iq2(stack)[2:]

    torch.testing.assert_close(out.float(), expected, rtol=1.1e-3, atol=1e-6)
