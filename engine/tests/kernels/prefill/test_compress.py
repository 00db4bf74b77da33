"""Pooling of a chunk's windows against the frontier and the pooling of the reference, for any cut."""

from __future__ import annotations

import pytest
import torch

from engine.cache.frontier import Frontier
from engine.kernels.ref import compress as twin
from engine.kernels.triton.prefill import compress
from engine.tests.kernels.prefill.cases import DEVICE, Random, worst


def check_pooling(ratio: int, depth: int, cuts: list[int], *, overlap: bool) -> None:
    random, channels = Random(10), depth * (2 if overlap else 1)
    ape = random.normal(ratio, channels)
    slots = ratio * (2 if overlap else 1)
    state = compress.State(
        torch.zeros(slots, channels, device=DEVICE), torch.zeros(slots, channels, device=DEVICE)
    )
    frontier, first = Frontier(ratio, 2 * channels, overlap=overlap), 0
    for count in cuts:
        z = random.normal(count, 2 * channels + 3)
        tokens = compress.Tokens(z[:, :channels], z[:, channels : 2 * channels], ape, first)
        rows = z[:, : 2 * channels].clone()
        rows[:, channels:] += ape[torch.arange(first, first + count, device=DEVICE) % ratio]
        closed = frontier.push(rows.cpu())

        pooled = compress.pool(tokens, state)
        compress.keep(tokens, state)

        wanted = torch.empty(0, depth) if closed is None else _pooled(*closed, channels, overlap)
        assert len(pooled) == len(wanted)
        if len(wanted):
            assert worst(pooled.cpu(), wanted) < 1e-5
        first += count


def _pooled(windows: torch.Tensor, before: torch.Tensor | None, channels: int, overlap: bool) -> torch.Tensor:
    keys, scores = windows.split(channels, -1)
    if overlap:
        none = torch.zeros_like(windows[0]) if before is None else before
        keys = twin.overlap_slots(keys, none[:, :channels])
        past = torch.full_like(scores[0], float("-inf")) if before is None else none[:, channels:]
        scores = twin.overlap_slots(scores, past)
    return twin.pool(keys, scores)


@pytest.mark.parametrize("cuts", [[1, 1, 3, 2, 9, 4], [8, 13], [3, 30]])
@pytest.mark.parametrize(("ratio", "overlap"), [(4, True), (6, False), (16, False)])
def test_windows_pool_alike_however_the_chunks_are_cut(cuts: list[int], ratio: int, overlap: bool) -> None:
    check_pooling(ratio, 24, cuts, overlap=overlap)


@pytest.mark.device
@pytest.mark.parametrize(("ratio", "depth", "overlap"), [(4, 512, True), (4, 128, True), (128, 512, False)])
def test_pooling_on_a_device(ratio: int, depth: int, overlap: bool) -> None:
    check_pooling(ratio, depth, [1000, 1, 127, 3, 4096], overlap=overlap)
