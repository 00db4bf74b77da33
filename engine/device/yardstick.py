"""Each packed product against a kernel that only reads the same bytes, both captured over all layers.

A layer's weights are read once a round and all layers together are far larger than any cache, so what is
measured is memory, as in a real step.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.device.decode import Buffers, Products
from engine.device.weights import DeviceWeights
from engine.kernels.cuda.build import Long, Module, load
from engine.kernels.layouts import IQ2, Q2, Q8
from engine.kernels.ref.packed import Planes, Routes


@dataclass(frozen=True, slots=True)
class Piece:
    """One product: its name, the launches of a round, and the tensors they read."""

    name: str
    launches: Sequence[Callable[[], None]]
    reads: Sequence[Tensor]


def table(weights: DeviceWeights, products: Products, rows: int) -> list[dict[str, Any]]:
    """A row for each product of a step of `rows` rows: bytes, microseconds, and shares of read and copy."""
    work = Buffers(weights, rows, 4096)
    _spread(work.routes, weights.spec.n_expert)
    return [_compare(piece) for piece in _pieces(weights, products, work)]


def clock(work: Callable[[], object], repeats: int = 7) -> float:
    """Median seconds of one call, by events on the device."""
    work()
    return float(statistics.median(clock_once(work) for _ in range(repeats)))


def clock_once(work: Callable[[], object]) -> float:
    """Seconds of one call, by events on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) / 1e3)


def captured(launches: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """The launches as one graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launches[0]()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    return graph.replay


def read(module: Module, data: Tensor, seen: Tensor) -> None:
    """Read a tensor's bytes and keep nothing."""
    count = data.numel() * data.element_size() // 16
    blocks = torch.cuda.get_device_properties(data.device).multi_processor_count * 8
    grid = (max(1, min(blocks, count // 1024)), 1)
    module.launch("read_bytes", grid, 256, data, Long(count), seen, chained=True)


def _compare(piece: Piece) -> dict[str, Any]:
    """Time of the product and of reading, interleaved."""
    seen = torch.zeros(1, dtype=torch.int32, device=piece.reads[0].device)
    module = load("gemv.cu", torch.cuda.current_device())
    ours = captured(piece.launches)
    plain = captured([partial(read, module, data, seen) for data in piece.reads])
    plain()
    ours()
    pairs = [(clock_once(plain), clock_once(ours)) for _ in range(7)]
    read_s, own_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    nbytes = sum(data.nbytes for data in piece.reads)
    count = len(piece.launches)
    return {
        "product": piece.name,
        "launches": count,
        "mb": round(nbytes / count / 1e6, 2),
        "us": round(own_s / count * 1e6, 2),
        "read_us": round(read_s / count * 1e6, 2),
        "share_of_read": round(read_s / own_s, 3),
        "tb_s": round(nbytes / own_s / 1e12, 3),
    }


def _spread(routes: Routes, experts: int) -> None:
    """Every row's experts its own, as far as there are enough: what independent routing mostly gives."""
    rows, used = routes.experts.shape
    pair = torch.arange(rows * used, dtype=torch.int32, device=routes.experts.device)
    routes.experts.copy_((pair * 7 % experts).view(rows, used))
    routes.weights.fill_(0.25)
    routes.active.copy_(routes.experts.flatten())
    routes.counts.fill_(1)
    routes.pairs[:, 0] = pair
    routes.total.fill_(rows * used)


def _pieces(weights: DeviceWeights, products: Products, work: Buffers) -> Iterator[Piece]:
    layers = weights.layers

    def dense(name: str, matrices: Sequence[Q8], x: Planes, out: Tensor) -> Piece:
        launches = [partial(products.dense, x, matrix, out, None, None) for matrix in matrices]
        return Piece(name, launches, [plane for matrix in matrices for plane in _planes(matrix)])

    yield dense("q_a, kv", [layer.enter for layer in layers], work.h, work.low)
    yield dense("q_b", [layer.q_b for layer in layers], work.query, work.q)
    grouped = [partial(products.grouped, work.mixed, layer.leave_a, work.left) for layer in layers]
    yield Piece("output_a", grouped, [plane for layer in layers for plane in _planes(layer.leave_a)])
    yield dense("output_b", [layer.leave_b for layer in layers], work.leaving, work.attended)
    yield dense("shared gate, up", [layer.shared_in for layer in layers], work.h, work.gates)
    experts = sorted(set(work.routes.active.tolist()))

    def read_experts(stacks: Sequence[IQ2 | Q2]) -> list[Tensor]:
        """As many bytes as the experts have, in one piece: reading six places would be six launches."""
        sizes = [sum(plane[: len(experts)].nbytes for plane in _planes(stack)) for stack in stacks]
        return [stack.words.flatten()[: size // 4] for stack, size in zip(stacks, sizes, strict=True)]

    ups = [
        partial(products.routed_up, work.h, layer.up, work.routes, layer.limit, work.inner)
        for layer in layers
    ]
    yield Piece("routed gate, up", ups, read_experts([layer.up for layer in layers]))
    downs = [
        partial(
            products.routed_down,
            work.units,
            work.sums,
            layer.down,
            layer.shared_out,
            work.routes,
            work.parts,
        )
        for layer in layers
    ]
    shared = [plane for layer in layers for plane in _planes(layer.shared_out)]
    yield Piece("routed and shared down", downs, [*read_experts([layer.down for layer in layers]), *shared])
    yield dense("output head", [weights.output], work.h, work.output)


def _planes(matrix: Any) -> list[Tensor]:
    return [getattr(matrix, field.name) for field in fields(matrix)]
