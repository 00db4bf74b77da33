"""From a model file to weights on a device: what can be refused is refused before a byte is read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch

from engine.device.decode import check_shape
from engine.device.fit import Need, free_bytes
from engine.device.progress import Bar
from engine.device.source import FileSource
from engine.device.weights import DeviceWeights
from engine.errors import EngineError
from engine.gguf.file import GGUFFile
from engine.model.spec import ModelSpec
from engine.model.tensors import check


def accelerator() -> torch.device:
    """The device that this process computes on; EngineError where torch sees none."""
    if not torch.cuda.is_available():
        raise EngineError("the device path runs on an accelerator and torch sees none; check `nvidia-smi`")
    return torch.device("cuda", torch.cuda.current_device())


def load(
    path: Path,
    device: torch.device,
    *,
    context: int | None = None,
    slots: int = 1,
    shown: TextIO | None = None,
) -> DeviceWeights:
    """The weights of a file on a device, with a bar on `shown`, by default stderr, while they come.

    `context` tokens of each of `slots` sequences shall fit beside them; default: the model's own.
    ModelFileError for a file that the device path does not take, EngineError with the numbers where it does
    not fit.
    """
    file = GGUFFile.open(path)
    spec = ModelSpec.from_metadata(file.metadata)
    check(file, spec)
    check_shape(spec)
    nbytes = sum(info.nbytes for info in file.tensors.values())
    need = Need(spec, nbytes, min(context or spec.context_length, spec.context_length), slots)
    need.check(free_bytes(device), _name(device))
    bar = Bar(path.name, nbytes, shown or sys.stderr)
    with FileSource(file, device, told=bar.add) as source, torch.inference_mode():
        weights = DeviceWeights.load(spec, source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return weights


def time_load(
    path: Path, device: torch.device, *, times: int, context: int | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Load a file so many times, each with nothing left of the last; seconds and rates of each, in order.

    The first may read from the disk, later ones read what the system keeps of the file in memory.
    """
    size = path.stat().st_size
    runs = []
    for _ in range(times):
        began = time.perf_counter()
        load(path, device, context=context)
        seconds = time.perf_counter() - began
        runs.append({"seconds": round(seconds, 3), "gb_s": round(size / seconds / 1e9, 2)})
        say(f"{path.name}: {size / 2**30:.2f} GiB in {seconds:.2f} s, {size / seconds / 1e9:.2f} GB/s")
    report: dict[str, Any] = {"file": path.name, "bytes": size, "device": _name(device), "loads": runs}
    if device.type == "cuda":
        report["peak_gib"] = round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
    return report


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
