"""Attention of a chunk against its twin, on the same rounded rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels.ref import rope
from engine.kernels.ref.norm import rms_norm
from engine.kernels.triton.prefill import attention
from engine.tests.kernels.prefill.cases import DEVICE, FULL, SMALL, Case, Random

EPS = 1e-6


def _one(q: Tensor, rows: Tensor, sinks: Tensor) -> Tensor:
    """Plain softmax attention of one token's heads [H, D] over rows [n, D] and the sinks."""
    score = torch.cat((q @ rows.t() * q.shape[1] ** -0.5, sinks.unsqueeze(1)), 1)
    return torch.softmax(score, 1)[:, :-1] @ rows


def check_attention(case: Case, *, first: int, ratio: int, chooses: bool) -> None:
    random, far = Random(8), (first + case.tokens) // ratio if ratio else 0
    data = random.normal(far + case.window + case.tokens, case.width).bfloat16()
    q = random.normal(case.tokens, case.heads, case.width).bfloat16()
    sinks = random.normal(case.heads)
    positions = torch.arange(first, first + case.tokens, device=DEVICE)
    cos, sin = rope.cos_sin(positions, rope.frequencies(case.rope, 10000.0).to(DEVICE))
    chosen = torch.full((case.tokens, case.topk), -1, dtype=torch.int32, device=DEVICE)
    turned = rope.rotate_by(rms_norm(q.float(), None, EPS), cos.unsqueeze(1), sin.unsqueeze(1))
    wanted = torch.empty(q.shape, device=DEVICE)
    for token in range(case.tokens):
        seen = (first + token + 1) // ratio if ratio else 0
        picked = random.order(max(seen, 1))[: min(seen, case.topk)].sort().values
        chosen[token, : len(picked)] = picked
        start = max(token + 1, case.window - first)
        near = data[far + start : far + token + 1 + case.window].float()
        wanted[token] = _one(
            turned[token], torch.cat((data[picked.long() if chooses else slice(seen)].float(), near)), sinks
        )
    wanted = rope.rotate_by(wanted, cos.unsqueeze(1), sin.unsqueeze(1), inverse=True)

    out = torch.empty_like(q)
    rows = attention.Rows(data, far, case.window, first, ratio)
    attention.attend(q, rows, attention.Heads(cos, sin, sinks, EPS), chosen if chooses else None, out)

    torch.testing.assert_close(out.float(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("first", [0, 29])
@pytest.mark.parametrize(("ratio", "chooses"), [(0, False), (6, False), (4, True)])
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_every_kind_of_layer_attends_as_the_twin(case: Case, first: int, ratio: int, chooses: bool) -> None:
    check_attention(case, first=first, ratio=ratio, chooses=chooses)


@pytest.mark.device
@pytest.mark.parametrize(("ratio", "chooses"), [(0, False), (128, False), (4, True)])
@pytest.mark.parametrize("case", FULL, ids=lambda case: case.name)
def test_attention_on_a_device(case: Case, ratio: int, chooses: bool) -> None:
    for first in (0, 29, 4500):
        check_attention(case, first=first, ratio=ratio, chooses=chooses)
