"""The second table: device kernels against their definitions in plain torch, on the same random inputs.

On a card the compiled kernels at full sizes; elsewhere the same files through Triton's interpreter, small.
The kernel runs first, so that no memory happens to hold the right answer already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.cache.frontier import Frontier
from engine.kernels.ref import compress as ref_compress
from engine.kernels.ref import hyper as ref_hyper
from engine.kernels.ref import index as ref_index
from engine.kernels.ref import rope, rounding
from engine.kernels.ref.norm import rms_norm
from engine.kernels.ref.rows import pack_index, pack_kv, unpack_kv
from engine.kernels.rows import E4M3_BLOCK, FP4_BLOCK, SCALE_BIAS, IndexLayout, KvLayout
from engine.kernels.triton.hyper import Site
from engine.kernels.triton.numbers import e4m3_exponent, fp4_exponent, narrow
from engine.kernels.triton.prefill import attention, compress, hyper, index, rows
from gates.equivalence import table
from gates.equivalence.seen import Inapplicable

CARD = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CARD else "cpu")
EPS, ITERATIONS, SEED = 1e-6, 5, 17
COUNT = 256  # values of the kernels of single values
BEYOND = 1e30  # an error that no tolerance allows; JSON has no infinity


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model, cut down or whole, and of a chunk."""

    tokens: int
    hidden: int
    streams: int
    heads: int
    nope: int
    rope: int
    window: int
    index_heads: int
    index_width: int
    topk: int

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.nope + self.rope


SHAPES = {
    "small": Shape(7, 256, 3, 5, 64, 16, 9, 3, 32, 5),  # odd on purpose
    "full": Shape(1000, 4096, 4, 64, 448, 64, 128, 64, 128, 512),
}
Pairs = list[tuple[Tensor, Tensor]]  # found and wanted


def run(twin_id: str, shape: str) -> dict[str, Any] | Inapplicable:
    """The error of one kernel, as the table measures it, beside three distances and the worst place."""
    if shape == "full" and not CARD:
        return Inapplicable("full sizes need an accelerator")
    with torch.inference_mode():
        pairs = RUNS[twin_id](SHAPES[shape])
    found = torch.cat([one.flatten().double().cpu() for one, _ in pairs])
    wanted = torch.cat([other.flatten().double().cpu() for _, other in pairs])
    return distances(found, wanted, table.twin(twin_id).measure)


def distances(found: Tensor, wanted: Tensor, measure: str) -> dict[str, Any]:
    """Errors of flat float64 values; NaN and infinities must stand in the same places on both sides."""
    unlike = (found.isfinite() != wanted.isfinite()) | (found.isnan() != wanted.isnan())
    if unlike.any():
        return {"error_found": BEYOND, "worst": int(unlike.nonzero()[0]), "values": len(found)}
    gap = (found - wanted).nan_to_num().abs()
    top = float(wanted.nan_to_num().abs().max())
    share = float((gap > 0).double().mean())
    errors = {"exact": float((gap > 0).sum()), "share": share, "relative": float(gap.max()) / (top or 1.0)}
    cosine = torch.nn.functional.cosine_similarity(found, wanted, 0)
    return {
        "error_found": errors[measure],
        "worst": int(gap.argmax()),
        "found": repr(float(found[gap.argmax()])),
        "wanted": repr(float(wanted[gap.argmax()])),
        "absolute": float(gap.max()),
        "relative": errors["relative"],
        "cosine": float(cosine),
        "values": len(found),
    }


class _Random:
    """Values from one seed, on the device."""

    def __init__(self, seed: int = SEED) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, spread: float = 1.0) -> Tensor:
        """Float32 of the given deviation."""
        return (torch.randn(*shape, generator=self._generator) * spread).to(DEVICE)

    def order(self, count: int) -> Tensor:
        """A permutation, int32."""
        return torch.randperm(count, generator=self._generator).int().to(DEVICE)


@triton.jit  # type: ignore[untyped-decorator]
def _exponents(peaks, e4m3, fp4, count: tl.constexpr):  # type: ignore[no-untyped-def] # Triton's language
    at = tl.arange(0, count)
    peak = tl.load(peaks + at)
    tl.store(e4m3 + at, e4m3_exponent(peak))
    tl.store(fp4 + at, fp4_exponent(peak))


@triton.jit  # type: ignore[untyped-decorator]
def _narrow(x, out, count: tl.constexpr):  # type: ignore[no-untyped-def] # Triton's language
    at = tl.arange(0, count)
    tl.store(out + at, narrow(tl.load(x + at)))


def scale_exponents(shape: Shape) -> Pairs:
    """Tops of both formats times powers of two, and both neighbours of each."""
    del shape
    exact = (torch.tensor([448.0, 6.0]).unsqueeze(1) * 2.0 ** torch.arange(-30, 12)).flatten()
    near = [torch.nextafter(exact, torch.full((), end)) for end in (0.0, torch.inf)]
    peaks = torch.cat((exact, *near, torch.tensor([0.0, 1e-4, 1e-38])))
    peaks = torch.cat((peaks, torch.ones(COUNT - len(peaks)))).to(DEVICE)
    found = [torch.zeros(COUNT, dtype=torch.int32, device=DEVICE) for _ in range(2)]
    _exponents[(1,)](peaks, *found, COUNT)
    blocks = ((rounding.e4m3_codes, E4M3_BLOCK), (rounding.fp4_codes, FP4_BLOCK))
    wanted = [codes(peaks.unsqueeze(1).repeat(1, block))[1].int() - SCALE_BIAS for codes, block in blocks]
    return list(zip(found, wanted, strict=True))


def bf16(shape: Shape) -> Pairs:
    """Values, and those that lie half-way between two."""
    del shape
    x = _Random().normal(COUNT // 2)
    both = torch.cat((x, (x.view(torch.int32) & -65536 | 0x8000).view(torch.float32)))
    out = torch.zeros(COUNT, dtype=torch.bfloat16, device=DEVICE)
    _narrow[(1,)](both, out, COUNT)
    return [(out, both.bfloat16())]


def unpacked_rows(shape: Shape) -> Pairs:
    """Packed rows over many decades."""
    drawn, layout = _Random(), KvLayout(shape.nope, shape.rope)
    packed = pack_kv(drawn.normal(shape.tokens, shape.width) * 10.0 ** drawn.normal(shape.tokens, 1), layout)
    at = drawn.order(shape.tokens)
    wide = torch.empty(shape.tokens, shape.width, dtype=torch.bfloat16, device=DEVICE)
    rows.unpack(packed, at, layout, wide)
    return [(wide, unpack_kv(packed, layout)[at.long()])]


def _angles(count: int, width: int, step: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(count, device=DEVICE) * step
    return rope.cos_sin(positions, rope.frequencies(width, 10000.0).to(DEVICE))


def finished_rows(shape: Shape) -> Pairs:
    """Norm, rotation and codes of a chunk's rows."""
    drawn, layout = _Random(), KvLayout(shape.nope, shape.rope)
    raw, weight = drawn.normal(shape.tokens, shape.width), 1 + drawn.normal(shape.width, spread=0.2)
    cos, sin = _angles(shape.tokens, shape.rope, 7)
    at = drawn.order(shape.tokens)
    packed = torch.zeros(shape.tokens, layout.nbytes, dtype=torch.uint8, device=DEVICE)
    wide = torch.empty(shape.tokens, shape.width, dtype=torch.bfloat16, device=DEVICE)
    rows.finish(raw, rows.Finish(weight, EPS, cos, sin), layout, at, packed, wide)
    return [(packed[at.long()], pack_kv(rope.rotate_by(rms_norm(raw, weight, EPS), cos, sin), layout))]


def index_rows(shape: Shape) -> Pairs:
    """The same for index rows, which go through a Hadamard transform."""
    drawn, width = _Random(), shape.index_width
    turned = min(shape.rope, width // 2)
    cos, sin = _angles(shape.tokens, turned, 5)
    raw, weight = drawn.normal(shape.tokens, width), 1 + drawn.normal(width, spread=0.2)
    signs = rounding.hadamard(torch.eye(width)).sign().to(DEVICE, torch.bfloat16)
    at = drawn.order(shape.tokens)
    packed = torch.zeros(shape.tokens, IndexLayout(width).nbytes, dtype=torch.uint8, device=DEVICE)
    index.finish(raw, rows.Finish(weight, EPS, cos, sin), signs, at, packed)
    exact = rope.rotate_by(rms_norm(raw, weight, EPS), cos, sin)
    return [(packed[at.long()], pack_index(rounding.hadamard(exact)))]


def index_scores(shape: Shape) -> Pairs:
    """Scores of the rows that each query may see."""
    drawn, causal = _Random(), index.Causal(shape.topk * 4 + 3, 4)
    count = causal.rows(shape.tokens)
    q = rounding.fp4_round(drawn.normal(shape.tokens, shape.index_heads, shape.index_width))
    keys = rounding.fp4_round(drawn.normal(count, shape.index_width))
    weights = drawn.normal(shape.tokens, shape.index_heads)
    found = index.empty_scores(shape.tokens, count, DEVICE)
    index.scores(q.bfloat16(), keys.bfloat16(), weights, causal, found)
    wanted = ref_index.scores(q, keys, weights * (shape.index_heads * shape.index_width) ** -0.5)
    last = torch.arange(shape.tokens, device=DEVICE).add(causal.first + 1).div(4, rounding_mode="floor")
    seen = torch.arange(count, device=DEVICE) < last.unsqueeze(1)
    return [(found[:, :count][seen], wanted[seen])]


def index_choice(shape: Shape) -> Pairs:
    """The best visible rows of few different scores."""
    causal, k = index.Causal(4 * shape.topk - 20, 4), shape.topk
    count, tokens = causal.rows(9), 9
    kinds = torch.randint(-2, 3, (tokens, count), generator=torch.Generator().manual_seed(SEED))
    score = kinds.float().div(3).to(DEVICE)
    chosen = torch.empty(tokens, k, dtype=torch.int32, device=DEVICE)
    index.select(score.clone(), causal, k, chosen)
    wanted = torch.full((tokens, k), -1, dtype=torch.int32)
    for token in range(tokens):
        visible = min((causal.first + token + 1) // 4, count)
        best = torch.sort(score[token, :visible].cpu(), descending=True, stable=True).indices[:k]
        wanted[token, : len(best)] = best.sort().values.int()
    return [(chosen, wanted)]


def pooled_rows(shape: Shape) -> Pairs:
    """Windows of both ratios, whatever chunks they come in."""
    pairs: Pairs = []
    for ratio, overlap in ((4, True), (16, False)):
        drawn, depth = _Random(ratio), shape.index_width
        channels = depth * (1 + overlap)
        ape = drawn.normal(ratio, channels)
        collected = torch.zeros(ratio * (1 + overlap), channels, device=DEVICE)
        kept = compress.State(collected, collected.clone())
        frontier, first = Frontier(ratio, 2 * channels, overlap=overlap), 0
        for count in (1, 3, 17, 2, 64):
            z = drawn.normal(count, 2 * channels)
            tokens = compress.Tokens(z[:, :channels], z[:, channels:], ape, first)
            found = compress.pool(tokens, kept)
            compress.keep(tokens, kept)
            placed = z.clone()
            placed[:, channels:] += ape[torch.arange(first, first + count, device=DEVICE) % ratio]
            closed = frontier.push(placed.cpu())
            if closed is not None:
                pairs.append((found.cpu(), _pooled(*closed, channels, overlap=overlap)))
            first += count
    return pairs


def _pooled(windows: Tensor, before: Tensor | None, channels: int, *, overlap: bool) -> Tensor:
    keys, scores = windows.split(channels, -1)
    if overlap:
        past = torch.zeros_like(windows[0]) if before is None else before
        keys = ref_compress.overlap_slots(keys, past[:, :channels])
        nothing = torch.full_like(scores[0], float("-inf")) if before is None else past[:, channels:]
        scores = ref_compress.overlap_slots(scores, nothing)
    return ref_compress.pool(keys, scores)


def _crossed(shape: Shape) -> tuple[Pairs, Pairs]:
    """Streams after a sub-layer, and the next one's input."""
    drawn, n = _Random(), shape.streams
    outputs = (2 + n) * n

    def site() -> Site:
        fn = drawn.normal(outputs, n * shape.hidden, spread=(n * shape.hidden) ** -0.5).half()
        return Site(fn, 1 + drawn.normal(3), drawn.normal(outputs), 1 + drawn.normal(shape.hidden))

    streams, first, second = drawn.normal(shape.tokens, n, shape.hidden), site(), site()
    y = drawn.normal(shape.tokens, shape.hidden).bfloat16()
    gates, _ = _entered(streams, first, n)
    wanted = ref_hyper.expand(y.float(), streams, gates[:, n : 2 * n], gates[:, 2 * n :].unflatten(1, (n, n)))
    _, wanted_h = _entered(wanted, second, n)
    projection = hyper.empty_projection(shape.tokens, shape.hidden, DEVICE)
    hyper.cross(streams, hyper.Output(y, None), gates, second.fn, projection)
    weighed = torch.empty(shape.tokens, outputs, device=DEVICE)
    hyper.weigh(projection, second, hyper.Mixing(n, ITERATIONS, EPS, EPS), weighed)
    wide, half = (torch.empty(y.shape, dtype=kind, device=DEVICE) for kind in (torch.bfloat16, torch.float16))
    hyper.enter(streams, weighed, second.norm, EPS, wide, half)
    return [(streams, wanted)], [(wide, wanted_h)]


def _entered(streams: Tensor, site: Site, n: int) -> tuple[Tensor, Tensor]:
    """Gates side by side and the normed input, by the definition."""
    z = rms_norm(streams.flatten(1), None, EPS) @ site.fn.float().t()
    pre, post, comb = ref_hyper.mix(z, site.scale, site.base, n, ITERATIONS, EPS)
    h = rms_norm(ref_hyper.collapse(streams, pre), site.norm, EPS)
    return torch.cat((pre, post, comb.flatten(1)), 1), h


def streams(shape: Shape) -> Pairs:
    """Residual streams after a sub-layer."""
    return _crossed(shape)[0]


def sub_layer_input(shape: Shape) -> Pairs:
    """What the next one reads."""
    return _crossed(shape)[1]


def chunk_attention(shape: Shape) -> Pairs:
    """A chunk's heads over their window and all compressed rows of a ratio, away from the start."""
    drawn, first, ratio = _Random(), 29, 6
    far = (first + shape.tokens) // ratio
    data = drawn.normal(far + shape.window + shape.tokens, shape.width).bfloat16()
    q, sinks = drawn.normal(shape.tokens, shape.heads, shape.width).bfloat16(), drawn.normal(shape.heads)
    positions = torch.arange(first, first + shape.tokens, device=DEVICE)
    cos, sin = rope.cos_sin(positions, rope.frequencies(shape.rope, 10000.0).to(DEVICE))
    out = torch.empty_like(q)
    read = attention.Rows(data, far, shape.window, first, ratio)
    attention.attend(q, read, attention.Heads(cos, sin, sinks, EPS), None, out)
    turned = rope.rotate_by(rms_norm(q.float(), None, EPS), cos.unsqueeze(1), sin.unsqueeze(1))
    wanted = torch.empty(q.shape, device=DEVICE)
    for token in range(shape.tokens):
        near = far + max(token + 1, shape.window - first)
        seen = torch.cat((data[: (first + token + 1) // ratio], data[near : far + token + 1 + shape.window]))
        wanted[token] = _softmaxed(turned[token], seen.float(), sinks)
    return [(out, rope.rotate_by(wanted, cos.unsqueeze(1), sin.unsqueeze(1), inverse=True))]


def _softmaxed(q: Tensor, seen: Tensor, sinks: Tensor) -> Tensor:
    """Plain attention of one token's heads [H, D] over rows [n, D] and the sinks."""
    score = torch.cat((q @ seen.t() * q.shape[1] ** -0.5, sinks.unsqueeze(1)), 1)
    return torch.softmax(score, 1)[:, :-1] @ seen


RUNS: dict[str, Callable[[Shape], Pairs]] = {
    run.__name__: run
    for run in (
        scale_exponents,
        bf16,
        unpacked_rows,
        finished_rows,
        index_rows,
        index_scores,
        index_choice,
        pooled_rows,
        streams,
        sub_layer_input,
        chunk_attention,
    )
}
