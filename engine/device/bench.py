"""Speed of the device path on a synthetic model of full size: decode over depth and rows, and each kernel.

Every share of the bandwidth is taken against kernels that read or copy the same bytes in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from engine.device import costs
from engine.device.cache import DeviceCache
from engine.device.decode import MOST_ROWS, DecodeStep, Products, check_shape
from engine.device.fit import Need, free_bytes
from engine.device.load import accelerator
from engine.device.prefill import Prefill
from engine.device.synthetic import Synthetic, published
from engine.device.weights import DeviceWeights
from engine.device.yardstick import captured, clock, clock_once, read, table
from engine.errors import SettingError
from engine.kernels.cuda.build import load
from engine.kernels.cuda.packed import CudaProducts
from engine.kernels.rows import IndexLayout, KvLayout
from engine.kernels.triton import nucleus, sample
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.model.published import two_bit_tensors
from engine.model.spec import ModelSpec

WARM_STEPS = 8
SAMPLES = 50  # draws of one timing
STORAGE_DEPTH = 131072  # tokens before a step over packed or wide rows
ROWS_DEPTH = 2048  # tokens before a step of several rows
SHORT_PAGES = 32  # pages of every sequence but the first: 4,096 tokens, again and again where it is longer
CHUNK = 4096  # tokens of a prefill chunk


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: a published shape, all layers or the first ones, and steps of several sizes.

    `depths` are tokens before a step of one row, `rows` the sizes of steps after `ROWS_DEPTH` tokens, `steps`
    how many of each are timed, `prefill` prompts in tokens, each a multiple of `CHUNK`.
    """

    model: str
    layers: int | None
    depths: Sequence[int]
    rows: Sequence[int]
    steps: int
    prefill: Sequence[int] = ()

    @property
    def slots(self) -> int:
        """Sequences that are live at a time: a step of many rows has one a row."""
        return max((1, *self.rows))

    @property
    def longest(self) -> int:
        """Tokens that the longest sequence reaches."""
        started = max(ROWS_DEPTH, 2 * CHUNK, *self.depths, *self.prefill)
        return started + 2 * self.steps + 256


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with what a step of it needs, and who hears of each figure."""

    weights: DeviceWeights
    cache: DeviceCache
    products: Products
    say: Callable[[str], None]


def measure(
    plan: Plan, say: Callable[[str], None], keep: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """The report of a plan on the current device; `say` gets a line for each thing done, and `keep` the
    report after each of its parts, so that a run that is cut short leaves what it found.

    SettingError for a plan that cannot be measured, ModelFileError for a shape that the kernels do not take,
    EngineError where there is no accelerator.
    """
    spec = _spec(plan)
    device = accelerator()
    with torch.inference_mode():
        for report in _parts(plan, spec, device, say):
            keep(report)
        return report


def _spec(plan: Plan) -> ModelSpec:
    spec = published(plan.model, plan.layers)
    if any(rows > MOST_ROWS for rows in plan.rows):
        raise SettingError(f"--rows has {max(plan.rows)}; a step has at most {MOST_ROWS} rows")
    if plan.steps < 1:
        raise SettingError(f"--decode is {plan.steps}; at least 1 step is timed")
    check_shape(spec)
    if any(tokens % CHUNK for tokens in plan.prefill):
        raise SettingError(f"--prefill is {list(plan.prefill)}; prompts are whole chunks of {CHUNK} tokens")
    return spec


def _parts(
    plan: Plan, spec: ModelSpec, device: torch.device, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The report, again and again, with one part more each time."""
    made = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "card": torch.cuda.get_device_name()}
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    report: dict[str, Any] = {**made, **versions, "model": plan.model, "layers": spec.n_layer}
    weight_bytes = sum(nbytes for _, _, nbytes in two_bit_tensors(spec))
    Need(spec, weight_bytes, plan.longest).check(free_bytes(device), report["card"])
    began = time.perf_counter()
    weights = DeviceWeights.load(spec, Synthetic(spec, device))
    torch.cuda.synchronize()
    report["generate_s"] = round(time.perf_counter() - began, 1)
    report["weight_gib"] = round(torch.cuda.memory_allocated() / 2**30, 2)
    say(f"{report['card']}: {spec.n_layer} layers, {report['weight_gib']} GiB in {report['generate_s']} s")
    products = CudaProducts(device)
    report["bandwidth"] = bandwidth(device)
    say(f"bandwidth {report['bandwidth']}")
    most = _pages(plan.longest)
    pages = most + plan.slots * SHORT_PAGES
    cache = filled(DeviceCache.empty(spec, device, slots=plan.slots, pages=pages, most=most), spec)
    model = Loaded(weights, cache, products, say)
    report["decode"] = [_decode(model, depth, 1, plan.steps) for depth in plan.depths]
    yield report
    report["products"] = {str(rows): table(weights, products, rows) for rows in (1, 16)}
    say(
        "products " + ", ".join(f"{row['product']} {row['share_of_read']}" for row in report["products"]["1"])
    )
    yield report
    report["storage"] = _storages(model, min(max(plan.depths), STORAGE_DEPTH), plan.steps)
    report["sampling"] = _sampling(weights)
    yield report
    report["rows"] = [_decode(model, ROWS_DEPTH, rows, plan.steps) for rows in plan.rows]
    yield report
    report["costs"], report["costs_same_token"] = _costs(model, plan)
    report["prefill"] = []
    for tokens in plan.prefill:
        yield report
        report["prefill"].append(_prefill(model, tokens))
    yield report
    del cache, model
    report["capacity"] = capacity(spec, device, say)
    yield report


BUDGET = 119 * 2**30  # what a 128 GB box leaves to model and cache


def capacity(spec: ModelSpec, device: torch.device, say: Callable[[str], None]) -> dict[str, Any]:
    """Tokens of live rows beside the model inside the budget: taken, written, and read back."""
    torch.cuda.empty_cache()
    free = BUDGET - torch.cuda.memory_allocated()
    page = sum(pool.numel() for pool in _pools(DeviceCache.empty(spec, device, slots=1, pages=1, most=1)))
    pages = max(0, (free - 2**30) // page)  # a GiB for what steps write
    cache = DeviceCache.empty(spec, device, slots=1, pages=pages, most=1)
    wrong = 0
    for again in (False, True):
        for number, pool in enumerate(_pools(cache)):
            for at, part in enumerate(pool.split(1 << 20)):
                random = torch.Generator(device).manual_seed(number * 1000 + at)
                values = torch.empty_like(part).random_(0, 256, generator=random)
                wrong += int((values != part).sum()) if again else 0
                part.copy_(values)
    tokens, each = pages * PAGE_TOKENS, page / PAGE_TOKENS
    say(f"capacity: {tokens} tokens of {each:.2f} bytes, {wrong} bytes read back wrong")
    return {"tokens": tokens, "bytes_per_token": each, "wrong_bytes": wrong, "budget_gib": BUDGET / 2**30}


def _pools(cache: DeviceCache) -> list[Tensor]:
    streams = [stream for layer in cache.layers for stream in (layer.main, layer.index) if stream is not None]
    return [stream.pool for stream in streams]


def bandwidth(device: torch.device) -> dict[str, float]:
    """Rates, in TB/s, of a copy (read and written) and of a plain read of 4 GiB."""
    source = torch.zeros(2**32, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seen = torch.zeros(1, dtype=torch.int32, device=device)
    module = load("gemv.cu", device.index or 0)
    copy_s = clock(lambda: target.copy_(source))
    read_s = clock(lambda: read(module, source, seen))
    return {"copy_tb_s": round(2 * 2**32 / copy_s / 1e12, 3), "read_tb_s": round(2**32 / read_s / 1e12, 3)}


def filled(cache: DeviceCache, spec: ModelSpec, seed: int = 1) -> DeviceCache:
    """Valid random rows everywhere, and every sequence's pages its own; the first sequence gets the most."""
    device = cache.table.device
    random = torch.Generator(device).manual_seed(seed)
    kv, index = KvLayout(spec.nope_dim, spec.rope_dim), IndexLayout(spec.index_dim)
    for layer in cache.layers:
        _fill_rows(layer.ring.view(-1, kv.nbytes), kv, random)
        if layer.main is not None:
            _fill_rows(layer.main.pool, kv, random)
        if layer.index is not None:
            layer.index.pool.random_(0, 256, generator=random)
            layer.index.pool[:, index.scale_at :] = 126
    own = cache.table.shape[1]
    cache.table[0] = torch.arange(own)
    for slot in range(1, cache.table.shape[0]):
        cache.table[slot] = torch.arange(own) % SHORT_PAGES + own + (slot - 1) * SHORT_PAGES
    cache.table.clamp_(max=cache.pages - 1)
    return cache


def _fill_rows(rows: Tensor, layout: KvLayout, random: torch.Generator) -> None:
    for start in range(0, len(rows), 1 << 20):
        part = rows[start : start + (1 << 20)]
        part.random_(0, 256, generator=random)
        part[:, : layout.nope] &= 0xB7  # exponents of 6 at most: magnitudes below 1, and never NaN
        part[:, layout.nope : layout.tail_at] = 125
        tail = torch.randn(len(part), layout.rope, generator=random, device=rows.device).bfloat16()
        part[:, layout.tail_at :] = tail.view(torch.uint8)


def _pages(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS)


def _decode(model: Loaded, depth: int, rows: int, steps: int) -> dict[str, Any]:
    """Time of captured steps of `rows` rows at `depth`: one stream of several rows, or several streams, is
    the same work."""
    step = DecodeStep(model.weights, model.cache, model.products, rows)
    step.tokens.random_(0, model.weights.spec.vocab)
    step.slots.copy_(torch.arange(rows) if rows > 8 else torch.zeros(rows))
    start = torch.full((rows,), depth, dtype=torch.int32) if rows > 8 else depth + torch.arange(rows)
    step.positions.copy_(start)
    began = time.perf_counter()
    step.capture()
    torch.cuda.synchronize()
    capture_s = time.perf_counter() - began

    def fresh() -> None:
        """Other tokens at the same depth: a step that feeds itself soon repeats one token in all its rows."""
        step.positions.copy_(start)
        step.tokens.random_(0, model.weights.spec.vocab)

    for _ in range(WARM_STEPS):
        step.run()
    seconds = []
    for _ in range(steps):
        fresh()
        seconds.append(clock_once(step.run))
    experts = step.experts_read
    fresh()
    middle = statistics.median(seconds)
    finite = bool(torch.isfinite(step.run()).all())
    rate = rows / middle
    model.say(
        f"depth {depth}, {rows} rows: {middle * 1e3:.3f} ms a step, {rate:.1f} tok/s, {experts} experts, "
        f"finite {finite}, captured in {capture_s:.1f} s"
    )
    return {
        "depth": depth,
        "rows": rows,
        "ms": round(middle * 1e3, 4),
        "ms_p90": round(sorted(seconds)[int(len(seconds) * 0.9)] * 1e3, 4),
        "tok_s": round(rate, 1),
        "experts": experts,  # distinct ones in the last layer
        "finite": finite,
        "kernels": kernels(step.run),
    }


def _storages(model: Loaded, depth: int, steps: int) -> dict[str, Any]:
    """A step over packed rows and over wide ones of the same values, in turns, and whether their logits are
    the same."""
    wide = replace(model, cache=model.cache.widened(model.weights.spec))
    found = []
    for either in (model, wide):
        step = DecodeStep(either.weights, either.cache, either.products, 1)
        step.positions.fill_(depth)
        found.append(step.run().clone())
    ms = [_decode(either, depth, 1, steps)["ms"] for either in (model, wide, wide, model)]
    packed_ms, wide_ms = (ms[0] + ms[3]) / 2, (ms[1] + ms[2]) / 2
    same, ratio = torch.equal(*found), round(packed_ms / wide_ms, 4)
    model.say(f"depth {depth}: packed / wide rows {packed_ms:.3f} / {wide_ms:.3f} ms = {ratio}, same {same}")
    return {
        "depth": depth,
        "packed_ms": packed_ms,
        "wide_ms": wide_ms,
        "packed_by_wide": ratio,
        "same_logits": same,
    }


def _sampling(weights: DeviceWeights) -> dict[str, float]:
    """Microseconds of a draw of one row in a graph: the likeliest, all tokens, and with every limit."""
    vocab, device = weights.spec.vocab, weights.device
    logits = torch.randn(1, vocab, device=device) * 3
    work, rules = nucleus.Work.empty(1, vocab, device), nucleus.Rules.greedy(1, vocab, device)
    after = torch.zeros(1, dtype=torch.int32, device=device)

    def draw() -> None:
        sample.sample(logits, rules, after, work)

    draws = captured([draw] * SAMPLES)
    found = {}
    for name, temperature, top_p, top_k in (
        ("likeliest", 0.0, 1.0, 0),
        ("all", 1.0, 1.0, 0),
        ("limited", 0.7, 0.95, 64),
    ):
        rules.temperature.fill_(temperature)
        rules.top_p.fill_(top_p)
        rules.top_k.fill_(top_k)
        found[f"{name}_us"] = round(clock(draws) / SAMPLES * 1e6, 2)
    return found


def _costs(model: Loaded, plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tables of verify costs: over the depths of a plan with another token in every row, so that rows share
    experts by chance alone; and with one token in all rows, which share what rows can share."""
    steps = {rows: DecodeStep(model.weights, model.cache, model.products, rows) for rows in costs.ROWS}
    for step in steps.values():
        step.capture()

    def clock(depth: int, rows: int, *, same: bool = False) -> float:
        step = steps[rows]
        step.positions.copy_(depth + torch.arange(rows))
        step.tokens.random_(0, model.weights.spec.vocab)
        if same:
            step.tokens.copy_(step.tokens[0].clone())
        return clock_once(step.run)

    for rows in (*costs.ROWS, *costs.ROWS):
        clock(ROWS_DEPTH, rows)
    apart = costs.measure(plan.depths, plan.steps, clock)
    alike = costs.measure([ROWS_DEPTH], plan.steps, partial(clock, same=True))
    for row in (*apart["depths"], *alike["depths"]):
        model.say(f"costs at {row['depth']}: {row['cost']} of {costs.UNIT} for {apart['rows']} rows")
    return apart, alike


def _prefill(model: Loaded, tokens: int) -> dict[str, Any]:
    """Time of a whole prompt of one sequence in chunks, after two chunks that compile what they need."""
    weights, prefill = model.weights, Prefill(model.weights, model.cache)
    random = torch.Generator(weights.device).manual_seed(tokens)
    ids = torch.empty(max(tokens, 2 * CHUNK), dtype=torch.int32, device=weights.device)
    ids.random_(0, weights.spec.vocab, generator=random)
    parts = [(start, ids[start : start + CHUNK]) for start in range(0, len(ids), CHUNK)]
    for start, part in parts[:2]:
        prefill.run(0, part, start)
    seconds = [clock_once(partial(prefill.run, 0, part, start)) for start, part in parts[: tokens // CHUNK]]
    rate = tokens / sum(seconds)
    model.say(f"prefill of {tokens}: {rate:.0f} tok/s, last chunk {seconds[-1] * 1e3:.1f} ms")
    last, part = parts[tokens // CHUNK - 1]
    return {
        "tokens": tokens,
        "chunk": CHUNK,
        "tok_s": round(rate, 1),
        "first_ms": round(seconds[0] * 1e3, 2),
        "last_ms": round(seconds[-1] * 1e3, 2),
        "chunks_ms": [round(chunk * 1e3, 2) for chunk in seconds],
        "finite": bool(torch.isfinite(prefill.run(0, part, last)).all()),
        "kernels": kernels(partial(prefill.run, 0, part, last), 1),
    }


def kernels(work: Callable[[], object], repeats: int = 3) -> list[dict[str, Any]]:
    """Every kernel that `work` runs: launches and microseconds a call of `work`, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    rows = [
        {
            "kernel": event.key,
            "launches": event.count / repeats,
            "us": round(event.self_device_time_total / repeats, 1),
        }
        for event in profile.key_averages()
        if event.self_device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row["us"])
