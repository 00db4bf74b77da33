"""Compiles every Triton kernel of a decode step and a prefill chunk for a card that need not be there.

`python -m engine.tests.device.compile_all 90` prints a line for each kernel: name, warps, shared memory.
A driver that only names the target stands in for the card; launches compile and go no further.  The tiles
are those of cards with little shared memory: the larger ones of prefill are compiled on the card itself.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from engine.device.cache import DeviceCache
from engine.device.decode import DecodeStep
from engine.device.prefill import Prefill
from engine.device.synthetic import Synthetic, shortened
from engine.device.weights import DeviceWeights
from engine.kernels.triton.prefill.card import ROOMY, SMALL_BYTES
from engine.model.published import SPECS

ROWS = (1, 16)
CHUNK = 512


class NoCard:
    """What Triton's compiler asks a driver before a launch."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: object = None) -> int:
        del device
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class NoProducts:
    """Leaves every buffer as it is."""

    def __getattr__(self, name: str) -> Any:
        del name
        return _nothing


def _nothing(*_: object) -> None:
    """Launch nothing."""


def main(capability: int) -> int:
    """Compile all; how many kernels do not compile, or need more shared memory than a block may have."""
    seen: dict[str, str] = {}
    original = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        try:
            kernel = original(self, *arguments, grid=grid, warmup=True, **options)
        except Exception as error:  # whatever the compiler raises is the finding
            seen[self.fn.__name__] = f"FAILED: {error.__cause__ or error}"
            return None
        key = f"{self.fn.__name__} {kernel.hash[:8]}"
        over = kernel.metadata.shared > SMALL_BYTES and capability // 10 not in ROOMY
        seen[key] = f"{kernel.metadata.num_warps} warps, {kernel.metadata.shared} bytes" + (
            ", FAILED: too large" if over else ""
        )
        return kernel

    driver.set_active(NoCard(capability))
    JITFunction.run = compile_only
    _launch_all()
    for name, found in sorted(seen.items()):
        print(f"{name}: {found}")
    return sum("FAILED" in found for found in seen.values())


def _launch_all() -> None:
    """The published widths with few experts and one layer of each kind."""
    spec = replace(
        shortened(SPECS["v4-flash"], 3), vocab=512, n_expert=16, ratios=(0, 4, 128), n_hash_layer=1
    )
    cpu = torch.device("cpu")
    weights = DeviceWeights.load(spec, Synthetic(spec, cpu))
    cache = DeviceCache.empty(spec, cpu, slots=1, pages=64, most=64)
    for rows in ROWS:
        for stored in (cache, cache.widened(spec)):
            step = DecodeStep(weights, stored, NoProducts(), rows)
            step.run()
            step.draw()
    Prefill(weights, cache).run(0, torch.zeros(CHUNK, dtype=torch.int32), 0)


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1])), 100))
