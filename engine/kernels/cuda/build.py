"""Compiles the CUDA sources of this folder at first use and launches their kernels on torch's current stream.

Goes through NVRTC and the driver by NVIDIA's own Python bindings, which torch's CUDA builds depend on.
"""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Long:
    """An integer that a kernel takes as 64 bit."""

    value: int


class Module:
    """The kernels of one compiled source."""

    def __init__(self, image: bytes) -> None:
        torch.cuda.current_stream()  # makes torch's context the current one
        self._driver = _bindings("driver")
        self._module = _checked(self._driver.cuModuleLoadData(image))
        self._kernels: dict[str, Any] = {}
        self._follows = self._driver.CUlaunchAttribute()
        names = self._driver.CUlaunchAttributeID
        self._follows.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        self._follows.value.programmaticStreamSerializationAllowed = 1

    def launch(
        self,
        name: str,
        grid: tuple[int, int],
        threads: int,
        *arguments: object,
        chained: bool = False,
        shared: int = 0,
    ) -> None:
        """Start kernel `name`; tensors pass their address, None a null pointer, int 32 bit, float 32 bit.

        `grid` is blocks, `threads` those of a block.  A `chained` kernel may start before the one launched
        before it ends, and waits for that end itself.  `shared` is bytes of dynamic shared memory, the same
        at every launch.  EngineError where the driver refuses.
        """
        kernel = self._kernels.get(name) or self._found(name, shared)
        values, kinds = zip(*(_argument(value) for value in arguments), strict=True)
        stream = torch.cuda.current_stream().cuda_stream
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = stream
        config.attrs = [self._follows] if chained else []
        config.numAttrs = len(config.attrs)
        _checked(self._driver.cuLaunchKernelEx(config, kernel, (values, kinds), 0))

    def _found(self, name: str, shared: int) -> Any:
        """The kernel, allowed so much dynamic shared memory."""
        kernel = _checked(self._driver.cuModuleGetFunction(self._module, name.encode()))
        limit = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(self._driver.cuFuncSetAttribute(kernel, limit, shared))
        self._kernels[name] = kernel
        return kernel


@cache
def load(source: str, device: int) -> Module:
    """The compiled module of `source`, a file of this folder, for a device of this process."""
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        return Module(compile_source(Path(__file__).with_name(source), f"sm_{major}{minor}"))


def compile_source(path: Path, architecture: str) -> bytes:
    """Machine code of a source for `architecture` (sm_90); EngineError carries the compiler's words."""
    nvrtc = _bindings("nvrtc")
    program = _checked(nvrtc.nvrtcCreateProgram(path.read_bytes(), path.name.encode(), 0, None, None))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise EngineError(f"{path.name} does not compile for {architecture}: {log.decode(errors='replace')}")
    image = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked((*nvrtc.nvrtcGetCUBIN(program, image), None))
    return image


def _bindings(name: str) -> Any:
    """A module of NVIDIA's bindings; EngineError says how to get them where they are not."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ModuleNotFoundError:
        raise EngineError(
            "the CUDA kernels need the package cuda-bindings, which is not installed; "
            "bring it into this Python, which keeps its torch: pip install -e '.[device]'"
        ) from None


def _argument(value: object) -> tuple[Any, Any]:
    if value is None:
        return 0, ctypes.c_void_p
    if isinstance(value, torch.Tensor):
        return value.data_ptr(), ctypes.c_void_p
    if isinstance(value, Long):
        return value.value, ctypes.c_longlong
    if isinstance(value, int):
        return value, ctypes.c_int
    if isinstance(value, float):
        return value, ctypes.c_float
    raise TypeError(f"a kernel takes tensors, None, int and float, found {type(value).__name__}")


def _checked(answer: tuple[Any, ...]) -> Any:
    """The value of a binding's (status, value) answer; EngineError when the status is not success."""
    status, *values = answer
    if int(status) != 0:
        raise EngineError(
            f"the CUDA driver answered {status.name}; check `nvidia-smi` and the driver's version"
        )
    return values[0] if values else None
