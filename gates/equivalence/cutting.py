"""Pairs of the families `cuts` and `company` that need no loop: one sequence cut, or several in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from engine.cache.sequence import SequenceCache
from engine.runner import Runner, Threads
from gates.equivalence.seen import Compared, Seen, named
from gates.equivalence.workbench import POOL_BYTES, Workbench, in_chunks, state
from gates.harness.probe import cpus

BEHIND = 70  # tokens behind a first chunk: more than a window
STEPS = 3  # decode steps of a batch
CHUNK = 97  # tokens of a chunk beside decoding rows: no multiple of anything


def _chunked(bench: Workbench, sizes: Sequence[int]) -> Compared:
    """The profile's prompt in one pass and in chunks."""
    runner, count = bench.runner(), bench.sizes.prompt
    found = in_chunks(runner, runner.new_cache(), bench.tokens(count), sizes)
    return Compared(bench.whole(count), found, {"more than one chunk": len(sizes) > 1 or sizes[0] < count})


def cut(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """One cut."""
    return _chunked(bench, [case["at"]])


def chunk_size(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Equal chunks, and what is left."""
    size = min(case["at"], bench.sizes.prompt - 1)
    return _chunked(bench, [size] * (bench.sizes.prompt // size))


def random_cuts(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """The chunks of the case."""
    return _chunked(bench, case["cuts"])


def decode(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Token by token."""
    return _chunked(bench, [1] * case["at"])


def first_chunk(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A first chunk of any size, against chunks of two windows."""
    runner, count = bench.runner(), case["at"]
    tokens = bench.tokens(count + BEHIND)
    usual = 2 * runner.spec.window
    found = []
    for size in (count, usual):
        cache, last = runner.new_cache(), None
        for at in range(0, count, size):
            last = runner.step([(cache, tokens[at : min(at + size, count)])])
        assert last is not None
        rest = in_chunks(runner, cache, tokens[count:], [BEHIND])
        found.append({"logits of the chunk's last token": last.numpy()} | rest)
    return Compared(found[0], found[1], {"another size": count != usual})


def threads(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """The same steps on one thread and on all, on two where there is one processor."""
    found, used = [], []
    for count in (1, max(2, cpus())):
        runner = bench.runner().beside(cache_bytes=POOL_BYTES, threads=Threads(count, count))
        sizes = [case["at"] - STEPS, *[1] * STEPS]
        found.append(in_chunks(runner, runner.new_cache(), bench.tokens(case["at"]), sizes))
        used.append(torch.get_num_threads())
    return Compared(found[0], found[1], {"one thread, then more": used[0] == 1 < used[1]})


def _lengths(bench: Workbench, rows: int) -> list[int]:
    """Prompts whose next tokens lie at edges and beside them."""
    edges = [edge + offset for edge in bench.sizes.edges for offset in (-1, 0, -2)]
    return [max(1, edges[number * 5 % len(edges)]) for number in range(rows)]


def _started(bench: Workbench, runner: Runner, rows: int) -> list[tuple[SequenceCache, list[int]]]:
    """So many sequences after their prompts, and the tokens that follow."""
    found = []
    for stream, length in enumerate(_lengths(bench, rows), start=1):
        tokens, cache = bench.tokens(length + STEPS, stream), runner.new_cache()
        runner.step([(cache, tokens[:length])])
        found.append((cache, tokens[length:]))
    return found


def _decoded(
    runner: Runner, live: Sequence[tuple[SequenceCache, list[int]]], chunk: list[int], *, together: bool
) -> Seen:
    """Decode steps of all sequences, with a chunk of a new one in the first step if there is one."""
    caches = [cache for cache, _ in live]
    newcomer = runner.new_cache()
    seen: Seen = {}
    for number in range(STEPS):
        slices = [(cache, rest[number : number + 1]) for cache, rest in live]
        if chunk and number == 0:
            slices.append((newcomer, chunk))
        groups = [slices] if together else [[piece] for piece in slices]
        seen[f"logits of step {number}"] = np.concatenate([runner.step(group).numpy() for group in groups])
    for place, cache in enumerate([*caches, newcomer] if chunk else caches):
        seen |= named(f"row {place}", state(cache))
    return seen


def decode_rows(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Decode steps of several sequences, each alone and all in one."""
    return _beside(bench, case["rows"], [])


def mixed_rows(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """The same with a chunk of one more sequence in the first step."""
    return _beside(bench, case["rows"], bench.tokens(CHUNK, 50))


def _beside(bench: Workbench, rows: int, chunk: list[int]) -> Compared:
    runner = bench.runner()
    alone = _decoded(runner, _started(bench, runner, rows), chunk, together=False)
    joined = _decoded(runner, _started(bench, runner, rows), chunk, together=True)
    return Compared(alone, joined, {"several rows": rows > 1 or bool(chunk)})
