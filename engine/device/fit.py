"""Whether a model fits on a device, before any of it is loaded: what it takes, what is free, what would fit.

Sizes of caches are read off caches without memory, so they are those of the real ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from engine.device.cache import DeviceCache
from engine.errors import EngineError
from engine.kernels.triton.compress import PAGE_TOKENS
from engine.model.spec import ModelSpec

# One raw tensor and what repacking makes beside it; later what steps and chunks write.
WORK: Final = 3 * 2**30
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a model takes on a device: its weights, and a cache for `slots` times `context` tokens."""

    spec: ModelSpec
    weights: int
    context: int
    slots: int = 1

    @property
    def cache(self) -> int:
        """Bytes of the cache."""
        return cache_bytes(self.spec, self.context, self.slots)

    @property
    def total(self) -> int:
        """Bytes of everything, room to work in included."""
        return self.weights + self.cache + WORK

    def check(self, free: int, where: str) -> None:
        """EngineError with all numbers where less than that is free."""
        if self.total <= free:
            return
        longest = self.longest(free)
        hint = f"{longest:,} tokens would fit" if longest else "no context would fit; use fewer layers"
        raise EngineError(
            f"the model does not fit on {where}: {_gib(self.weights)} of weights, {_gib(self.cache)} for "
            f"{self.slots} x {self.context:,} tokens and {_gib(WORK)} to work in make {_gib(self.total)}, "
            f"and {_gib(free)} are free; {hint}"
        )

    def longest(self, free: int) -> int:
        """The longest context that fits into `free` bytes beside the weights; 0 if none does."""
        room = free - self.weights - WORK
        first, second = (cache_bytes(self.spec, pages * PAGE_TOKENS, self.slots) for pages in (1, 2))
        if room < first:
            return 0
        pages = 1 + (room - first) // max(1, second - first)
        return min(pages * PAGE_TOKENS, self.context)


def cache_bytes(spec: ModelSpec, context: int, slots: int) -> int:
    """Bytes of a cache of `slots` sequences of `context` tokens each."""
    pages = -(-context // PAGE_TOKENS)
    cache = DeviceCache.empty(spec, torch.device("meta"), slots=slots, pages=slots * pages, most=pages)
    streams = [stream for layer in cache.layers for stream in (layer.main, layer.index) if stream is not None]
    tensors = [layer.ring for layer in cache.layers]
    tensors += [tensor for stream in streams for tensor in (stream.pool, stream.keys, stream.scores)]
    return sum(tensor.nbytes for tensor in (*tensors, cache.table))


def free_bytes(device: torch.device, memory: Iterable[str] | None = None) -> int:
    """Free memory of a device, what this process holds and does not use included; where a device shares the
    host's memory, what the host can give, its file cache included.

    `memory` stands in for the lines of /proc/meminfo.
    """
    spare = 0
    if device.type == "cuda":
        spare = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if not torch.cuda.get_device_properties(device).is_integrated:
            return int(torch.cuda.mem_get_info(device)[0]) + spare
    lines = _MEMORY.read_text().splitlines() if memory is None else memory
    found = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(found) * 1024 + spare


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"
