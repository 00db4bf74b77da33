"""What stands around the dense products of a chunk, against the twins."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.layouts import decode_q8, split_half, split_q8
from engine.kernels.ref import moe
from engine.kernels.ref.norm import rms_norm
from engine.kernels.triton.prefill import dense
from engine.tests.kernels.prefill.cases import DEVICE, FULL, SMALL, Case, Random, worst


def check_dense(case: Case) -> None:
    random, n = Random(9), case.tokens
    values = random.normal(32, case.hidden).half()
    matrix, half = split_q8(random.blocks((32, case.hidden // 32), 34, {0: 0.01})), split_half(values)
    x = random.normal(n, 2 * case.inner, spread=8.0).bfloat16()
    raw, weight = random.normal(n, case.hidden + 3)[:, 3:], random.normal(case.hidden)

    room = torch.empty(values.numel() + 8, dtype=torch.bfloat16, device=DEVICE)
    expanded = dense.expand(matrix, room).clone()
    unfolded = dense.unfold(half, room.view(torch.float16))
    unit = torch.empty(n, case.inner, dtype=torch.bfloat16, device=DEVICE)
    dense.glu(x, 10.0, unit)
    bf16 = torch.empty(n, case.hidden, dtype=torch.bfloat16, device=DEVICE)
    fp16 = torch.empty(n, case.hidden, dtype=torch.float16, device=DEVICE)
    dense.norm(raw, weight, 1e-6, bf16, fp16)
    wanted = rms_norm(raw, weight, 1e-6)

    assert torch.equal(expanded, decode_q8(matrix).bfloat16())
    assert torch.equal(unfolded, values)
    assert worst(unit, moe.glu(x[:, : case.inner].float(), x[:, case.inner :].float(), 10.0)) < 4e-3
    assert worst(bf16, wanted) < 4e-3
    assert worst(fp16, wanted) < 5e-4


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_expansion_gated_units_and_norms(case: Case) -> None:
    check_dense(case)


@pytest.mark.device
@pytest.mark.parametrize("case", FULL, ids=lambda case: case.name)
def test_dense_parts_on_a_device(case: Case) -> None:
    check_dense(case)
