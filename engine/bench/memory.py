"""What cached rows cost and save here: packed against wide, warm against cold, out of memory and back.

The two storages take turns in the order A B B A and are timed by the processor time of their thread, so that
other processes weigh on both alike.  A deep state is a short real one whose rows are repeated: what a step
costs depends on how many there are, not on what they hold.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.bench.service import generate, request
from engine.cache.pages import PageTable
from engine.cache.sequence import SequenceCache
from engine.cache.shelf import Shelf
from engine.cache.view import ROWS
from engine.config import Settings
from engine.errors import SettingError
from engine.kernels.rows import Storage
from engine.runner import Runner, Threads
from engine.server.loading import load_service

SEED_TOKENS = 1024  # of the state that is repeated
TOKEN = 5  # what is decoded, over and over
BLOCKS = ("packed", "wide", "wide", "packed")


def measure(
    path: Path, settings: Settings, *, depths: Sequence[int], decode: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """All figures; depths in tokens, at the first of which warm and cold are compared as well.

    Returns times in seconds, of the processor but for the two first tokens, and bytes a token by storage.
    """
    odd = [depth for depth in depths if depth % SEED_TOKENS]
    if odd:
        raise SettingError(
            f"--depths has {', '.join(map(str, odd))}; with --memory give whole multiples of {SEED_TOKENS}"
        )
    torch.set_num_threads(1)
    runners = {storage: _runner(path, storage, max(depths)) for storage in ("packed", "wide")}
    sizes = {name: runner.ledger.page_bytes / runner.ledger.page_tokens for name, runner in runners.items()}
    rows = []
    for depth in depths:
        say(f"decoding at {depth} tokens, packed and wide in turns")
        rows.append({"depth": depth, **_turns(runners, depth, decode)})
    say(f"storing and restoring {max(depths)} tokens")
    moved = _move(runners["packed"], max(depths))
    say(f"a prompt of {min(depths)} tokens, cold and warm")
    first = _first_tokens(path, settings, min(depths))
    return {"bytes_per_token": sizes, "decode": rows, "disk": moved, "first_token": first}


def describe(report: dict[str, Any]) -> str:
    """The figures in words."""
    sizes, disk, first = report["bytes_per_token"], report["disk"], report["first_token"]
    ratio = sizes["wide"] / sizes["packed"]
    lines = [f"bytes a token: {sizes['packed']:.1f} packed, {sizes['wide']:.1f} wide, {ratio:.2f} times less"]
    lines += [
        f"decode at {row['depth']} tokens: {1000 * row['packed_s']:.2f} ms packed, "
        f"{1000 * row['wide_s']:.2f} ms wide, packed / wide {row['ratio']:.3f}"
        for row in report["decode"]
    ]
    lines += [
        f"first token after {first['depth']} tokens: {first['cold_s']:.2f} s cold, "
        f"{1000 * first['warm_s']:.1f} ms warm, warm / cold {first['ratio']:.5f}",
        f"{disk['depth']} tokens out of memory: {1000 * disk['release_s']:.2f} ms, "
        f"{1000 * (disk['copy_s'] + disk['release_s']):.1f} ms with a copy for the disk",
        f"{disk['depth']} tokens back: {1000 * disk['fill_s']:.1f} ms of the engine's thread, after "
        f"{1000 * disk['read_s']:.1f} ms of the worker; {disk['nbytes'] / 2**20:.1f} MiB, "
        f"written in {1000 * disk['write_s']:.1f} ms",
    ]
    return "\n".join(lines)


def _runner(path: Path, storage: Storage, depth: int) -> Runner:
    threads = Threads(1, 1)
    probe = Runner(path, storage=storage, threads=threads, cache_bytes=0).ledger
    pages = 4 + 2 * -(-depth // probe.page_tokens)
    return Runner(path, storage=storage, threads=threads, cache_bytes=pages * probe.page_bytes)


def _turns(runners: dict[str, Runner], depth: int, decode: int) -> dict[str, float]:
    """Seconds a token of each storage, the best of its blocks, and their ratio."""
    states = {name: deep(runner, depth) for name, runner in runners.items()}
    for name, runner in runners.items():
        _decode(runner, states[name], 2)  # first steps warm up memory
    taken: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(2):
        for name in BLOCKS:
            taken[name].append(_decode(runners[name], states[name], decode))
    for state in states.values():
        state.pages.table.close()
    best = {name: min(times) / decode for name, times in taken.items()}
    return {"packed_s": best["packed"], "wide_s": best["wide"], "ratio": best["packed"] / best["wide"]}


def _decode(runner: Runner, state: SequenceCache, count: int) -> float:
    began = time.thread_time()
    for _ in range(count):
        runner.step([(state, [TOKEN])])
    return time.thread_time() - began


def deep(runner: Runner, depth: int) -> SequenceCache:
    """A state of `depth` tokens, a whole multiple of SEED_TOKENS."""
    seed = runner.new_cache()
    runner.step([(seed, [3 + index % 61 for index in range(SEED_TOKENS)])])
    arrays = {_at(name, depth): _repeated(name, array, depth) for name, array in seed.arrays({}).items()}
    seed.pages.table.close()
    state = runner.new_cache(PageTable(runner.ledger))
    state.fill(depth, (), arrays)
    return state


def _at(name: str, depth: int) -> str:
    """The name of an array of the end, for another end."""
    return name if name.startswith(ROWS) else name.replace(f"{SEED_TOKENS}.", f"{depth}.", 1)


def _repeated(name: str, array: NDArray[Any], depth: int) -> NDArray[Any]:
    return np.tile(array, (depth // SEED_TOKENS, 1)) if name.startswith(ROWS) else array


def _move(runner: Runner, depth: int) -> dict[str, float]:
    """What it takes to have a state copied, released, written, read and filled into pages again."""
    tokens = np.full(depth, TOKEN, np.int32)
    state = deep(runner, depth)
    times: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any], clock: Callable[[], float] = time.thread_time) -> Any:
        began = clock()
        found = work()
        times[name] = clock() - began
        return found

    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(Path(folder), fingerprint=runner.fingerprint, budget=2**34)
        arrays = timed("copy_s", lambda: state.arrays({}))
        timed("release_s", state.pages.table.close)
        shelf.put("", tokens, (), arrays)
        timed("write_s", shelf.settle, time.perf_counter)
        found = shelf.find("", np.append(tokens, np.int32(1)))
        assert found is not None
        loaded = timed("read_s", shelf.load(found.entry).result, time.perf_counter)
        nbytes = shelf.stats().nbytes
        shelf.close()
    again = runner.new_cache(PageTable(runner.ledger))
    timed("fill_s", lambda: again.fill(depth, (), loaded))
    again.pages.table.close()
    return {"depth": depth, "nbytes": nbytes, **times}


def _first_tokens(path: Path, settings: Settings, depth: int) -> dict[str, float]:
    """Seconds from admission to the first token, of a new prompt and of one that goes on from it."""
    service = load_service(path, settings)
    try:
        asked = replace(request(service, depth, 2), reuse=True)
        answer: list[int] = []
        cold = generate(service, asked, answer.append)
        longer = replace(asked, id="warm", prompt=(*asked.prompt, *answer[:-1], *asked.prompt[:8]))
        warm = generate(service, longer, lambda _: None)
    finally:
        service.engine.close()
    return {
        "depth": depth,
        "cold_s": cold.prefill_s,
        "warm_s": warm.prefill_s,
        "ratio": warm.prefill_s / cold.prefill_s,
        "warm_cached": warm.cached_tokens,
    }
