"""Hyper-connections of a chunk against their twin."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels.ref import hyper as twin
from engine.kernels.ref.norm import rms_norm
from engine.kernels.triton.hyper import Site
from engine.kernels.triton.prefill import hyper
from engine.tests.kernels.prefill.cases import DEVICE, FULL, SMALL, Case, Random, worst

EPS = 1e-6
ITERATIONS = 5


def _site(random: Random, case: Case) -> Site:
    n, outputs = case.streams, (2 + case.streams) * case.streams
    fn = random.normal(outputs, n * case.hidden, spread=(n * case.hidden) ** -0.5).half()
    return Site(fn, 1 + random.normal(3), random.normal(outputs), 1 + random.normal(case.hidden))


def _wanted(streams: Tensor, site: Site, n: int) -> tuple[Tensor, Tensor]:
    """Gates side by side and the normed input."""
    z = rms_norm(streams.flatten(1), None, EPS) @ site.fn.float().t()
    pre, post, comb = twin.mix(z, site.scale, site.base, n, ITERATIONS, EPS)
    h = rms_norm(twin.collapse(streams, pre), site.norm, EPS)
    return torch.cat((pre, post, comb.flatten(1)), 1), h


def _entered(
    streams: Tensor, projection: hyper.Projection, site: Site, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, _, hidden = streams.shape
    gates = torch.empty(tokens, (2 + n) * n, device=DEVICE)
    hyper.weigh(projection, site, hyper.Mixing(n, ITERATIONS, EPS, EPS), gates)
    bf16 = torch.empty(tokens, hidden, dtype=torch.bfloat16, device=DEVICE)
    fp16 = torch.empty(tokens, hidden, dtype=torch.float16, device=DEVICE)
    hyper.enter(streams, gates, site.norm, EPS, bf16, fp16)
    return gates, bf16, fp16


def check_crossing(case: Case, *, slots: int) -> None:
    random, n = Random(1), case.streams
    streams, first, second = (
        random.normal(case.tokens, n, case.hidden),
        _site(random, case),
        _site(random, case),
    )
    y = random.normal(case.tokens, case.hidden).bfloat16()
    parts = random.normal(case.tokens, slots, case.hidden).bfloat16() if slots else None
    gates, _ = _wanted(streams, first, n)
    sums = y.float() if parts is None else y.float() + parts.float().sum(1)
    wanted = twin.expand(sums, streams, gates[:, n : 2 * n], gates[:, 2 * n :].unflatten(1, (n, n)))
    wanted_gates, wanted_h = _wanted(wanted, second, n)

    projection = hyper.empty_projection(case.tokens, case.hidden, DEVICE)
    hyper.cross(streams, hyper.Output(y, parts), gates, second.fn, projection)
    found_gates, bf16, fp16 = _entered(streams, projection, second, n)

    assert worst(streams, wanted) < 1e-5
    assert worst(found_gates, wanted_gates) < 1e-4
    assert worst(bf16, wanted_h) < 5e-3
    assert worst(fp16, wanted_h) < 6e-4


def check_embedding(case: Case) -> None:
    random, n = Random(2), case.streams
    table, site = random.normal(50, case.hidden).half(), _site(random, case)
    ids = random.whole(0, 50, case.tokens)
    wanted = table.float()[ids.long()].unsqueeze(1).repeat(1, n, 1)
    wanted_gates, _ = _wanted(wanted, site, n)

    streams, projection = torch.empty_like(wanted), hyper.empty_projection(case.tokens, case.hidden, DEVICE)
    hyper.embed(table, ids, streams, site.fn, projection)

    assert torch.equal(streams, wanted)
    assert worst(_entered(streams, projection, site, n)[0], wanted_gates) < 1e-4


@pytest.mark.parametrize("slots", [0, 2])
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_leaving_a_sub_layer_and_entering_the_next(case: Case, slots: int) -> None:
    check_crossing(case, slots=slots)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_embedding_fills_all_streams(case: Case) -> None:
    check_embedding(case)


@pytest.mark.device
@pytest.mark.parametrize("case", FULL, ids=lambda case: case.name)
def test_hyper_connections_on_a_device(case: Case) -> None:
    check_embedding(case)
    check_crossing(case, slots=0)
    check_crossing(case, slots=case.used)
