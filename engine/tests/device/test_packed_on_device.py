"""The packed products on a device: against their twin in torch, and bit for bit over the number of rows."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from engine.gguf.quants import QuantType
from engine.kernels import layouts
from engine.kernels.cuda.packed import CudaProducts
from engine.kernels.layouts import IQ2, Q2, Q8
from engine.kernels.ref.packed import Planes, ReferenceProducts, Routes
from engine.kernels.triton.planes import planes as split
from engine.tests.kernels.test_layouts import random_blocks

pytestmark = pytest.mark.device
ROWS = [1, 2, 5, 8, 9, 16, 20, 32]
TOLERANCE = 1e-4  # of the largest value: float32 sums in another order


@pytest.fixture(scope="module")
def cuda() -> CudaProducts:
    return CudaProducts(torch.device("cuda", 0))


def planes(rows: int, width: int, seed: int, *, groups: int = 0) -> Planes:
    shape = (groups, rows, width) if groups else (rows, width)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).cuda()
    out = Planes.empty(shape, x.device, halves=True)
    flat = Planes(out.ints.view(-1, width // 8, 16), out.scales.view(-1, width // 256))
    split(x.view(-1, width), flat)
    high = x.half()
    assert out.halves is not None
    both = torch.stack((high.unflatten(-1, (-1, 8)), (x - high.float()).half().unflatten(-1, (-1, 8))), -2)
    out.halves.copy_(both.flatten(-2))
    return out


def first(x: Planes, rows: int) -> Planes:
    halves = None if x.halves is None else x.halves[:rows].contiguous()
    return Planes(x.ints[:rows].contiguous(), x.scales[:rows].contiguous(), halves)


def q8(rows: int, width: int, seed: int) -> Q8:
    planes = layouts.split_q8(random_blocks(QuantType.Q8_0, (rows, width), seed))
    return Q8(planes.codes.cuda(), (planes.scales * 0.01).cuda())


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    size = expected.abs().max()

    torch.testing.assert_close(found / size, expected / size, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("outputs", "width"), [(1536, 4096), (32768, 1024), (4096, 8192), (4096, 2048), (48, 256)]
)
def test_dense_products_are_those_of_the_twin_and_of_any_number_of_rows(
    cuda: CudaProducts, outputs: int, width: int
) -> None:
    weight = q8(outputs, width, 1)
    half = layouts.split_half(
        torch.randn(2624, width, generator=torch.Generator().manual_seed(2)).half().cuda()
    )
    everything = planes(32, width, 3)
    reference = torch.empty(32, outputs, device="cuda"), torch.empty(32, 2624, device="cuda")
    ReferenceProducts().dense(everything, weight, reference[0], half, reference[1])
    whole = None
    for rows in reversed(ROWS):
        found = (
            torch.full((rows, outputs), torch.nan, device="cuda"),
            torch.full((rows, 2700), torch.nan, device="cuda")[:, :2624],
        )
        cuda.dense(first(everything, rows), weight, found[0], half, found[1])
        whole = whole or found

        close(found[0], reference[0][:rows])
        close(found[1], reference[1][:rows])
        assert torch.equal(found[0], whole[0][:rows])
        assert torch.equal(found[1], whole[1][:rows])


def test_grouped_products_are_those_of_the_twin_and_of_any_number_of_rows(cuda: CudaProducts) -> None:
    weight, everything = q8(8 * 1024, 4096, 1), planes(32, 4096, 2, groups=8)
    reference = torch.empty(32, 8192, device="cuda")
    ReferenceProducts().grouped(everything, weight, reference)
    whole = None
    for rows in reversed(ROWS):
        x = Planes(everything.ints[:, :rows].contiguous(), everything.scales[:, :rows].contiguous())
        found = torch.full((rows, 8192), torch.nan, device="cuda")
        cuda.grouped(x, weight, found)
        whole = found if whole is None else whole

        close(found, reference[:rows])
        assert torch.equal(found, whole[:rows])


def routed(rows: int, experts: int, used: int, seed: int) -> Routes:
    """Routes of random experts, made on the host."""
    random = torch.Generator().manual_seed(seed)
    chosen = torch.rand(32, experts, generator=random).topk(used, 1).indices.sort(1).values[:rows]
    weights = torch.rand(32, used, generator=random)[:rows]
    routes = Routes.empty(rows, used, torch.device("cpu"))
    routes.experts.copy_(chosen)
    routes.weights.copy_(weights)
    lists: dict[int, list[int]] = {}
    for pair, expert in enumerate(chosen.flatten().tolist()):
        lists.setdefault(expert, []).append(pair)
    groups = [
        (expert, pairs[at : at + 4]) for expert, pairs in lists.items() for at in range(0, len(pairs), 4)
    ]
    for at, (expert, pairs) in enumerate(groups):
        routes.active[at], routes.counts[at] = expert, len(pairs)
        routes.pairs[at, : len(pairs)] = torch.tensor(pairs)
    routes.total[0] = len(groups)
    return Routes(*(getattr(routes, field.name).cuda() for field in fields(Routes)))


@pytest.mark.parametrize(("experts", "hidden", "inner"), [(8, 4096, 2048), (12, 512, 256), (6, 256, 512)])
def test_routed_experts_are_those_of_the_twin_and_of_any_number_of_rows(
    cuda: CudaProducts, experts: int, hidden: int, inner: int
) -> None:
    up = layouts.split_iq2(random_blocks(QuantType.IQ2_XXS, (experts, 2 * inner, hidden), 1))
    up = IQ2(up.words.cuda(), (up.scales * 0.0005).cuda())
    down = layouts.split_q2(random_blocks(QuantType.Q2_K, (experts, hidden, inner), 2))
    down = Q2(down.words.cuda(), down.minors.cuda(), (down.scales * 0.01).cuda())
    shared, everything, used = q8(hidden, inner, 3), planes(32, hidden, 4), 6
    whole = None
    for rows in reversed(ROWS):
        routes, x = routed(rows, experts, used, 5), first(everything, rows)
        pairs = rows * used
        inners = [torch.full((pairs, inner), torch.nan, device="cuda") for _ in range(2)]
        ReferenceProducts().routed_up(x, up, routes, 10.0, inners[0])
        cuda.routed_up(x, up, routes, 10.0, inners[1])
        units = Planes.empty((pairs + rows, inner), x.ints.device)
        sums = torch.zeros(pairs, inner // 256, 2, 16, dtype=torch.float16, device="cuda")
        split(inners[1], units, sums)
        tail = Planes(units.ints[pairs:], units.scales[pairs:])
        split(
            torch.randn(32, inner, generator=torch.Generator().manual_seed(6)).cuda()[:rows].contiguous(),
            tail,
        )
        parts = [torch.full((pairs + rows, hidden), torch.nan, device="cuda") for _ in range(2)]
        ReferenceProducts().routed_down(units, sums, down, shared, routes, parts[0])
        cuda.routed_down(units, sums, down, shared, routes, parts[1])
        whole = whole or (inners[1], parts[1])

        close(inners[1], inners[0])
        close(parts[1][:pairs], parts[0][:pairs])
        close(parts[1][pairs:], parts[0][pairs:])
        assert torch.equal(inners[1], whole[0][:pairs])
        assert torch.equal(parts[1][:pairs], whole[1][:pairs])
        assert torch.equal(parts[1][pairs:], whole[1][32 * used : 32 * used + rows])
