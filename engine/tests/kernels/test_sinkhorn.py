"""The CPU's Sinkhorn normalisation against the one for training, and its invariance."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.ref import hyper
from engine.kernels.ref.sinkhorn import balance


@given(n=st.integers(1, 6), rows=st.integers(1, 40), turns=st.integers(1, 20), seed=st.integers(0, 9999))
def test_balance_is_sinkhorn_and_keeps_a_rows_bits(n: int, rows: int, turns: int, seed: int) -> None:
    logits = torch.randn(rows, n, n, generator=torch.Generator().manual_seed(seed)) * 3

    found = balance(logits, turns, 1e-6)

    torch.testing.assert_close(found, hyper.sinkhorn(logits, turns, 1e-6), rtol=1e-4, atol=1e-6)
    assert torch.equal(found[-1], balance(logits[-1:], turns, 1e-6)[0])
    assert 1e-3 > (found.sum(1) - 1).abs().max().item()
