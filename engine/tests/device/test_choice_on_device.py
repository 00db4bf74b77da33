"""The indexer's choice on a device against its twin: ties, few and many rows, minus zero."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.cuda.packed import CudaProducts
from engine.kernels.ref.packed import Choice, ReferenceProducts

pytestmark = pytest.mark.device
RATIO, TOPK = 4, 512


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "many_ties"])
@pytest.mark.parametrize("counts", [(1, 512, 513), (2047, 2048, 2049), (4096, 33000, 131072)])
def test_the_best_rows_are_those_of_the_twin(counts: tuple[int, ...], ties: bool) -> None:
    rows, most = len(counts), max(counts) + 100
    choice = Choice.empty(rows, most, TOPK, torch.device("cuda", 0))
    scores = torch.randn(choice.scores.shape, generator=torch.Generator().manual_seed(rows))
    if ties:
        scores = (scores * 4).round() / 4
        scores[:, ::3] = -0.0
    choice.scores.copy_(scores)
    positions = torch.tensor([count * RATIO - 1 for count in counts], dtype=torch.int32)
    CudaProducts(torch.device("cuda", 0)).choose(positions.cuda(), RATIO, choice)
    twin = Choice.empty(rows, most, TOPK, torch.device("cpu"))
    twin.scores.copy_(scores)
    ReferenceProducts().choose(positions, RATIO, twin)

    assert torch.equal(choice.chosen.cpu(), twin.chosen)
