"""Raw tensors of a model file on a device: threads read pieces into pinned memory, and while some are read
others are copied to the device.

`pread` and not the mapped file: neither is what loading waits for, and a file that is cut while it is read is
an error of one read, where a mapping ends the process (docs/decisions has the figures).  Copies go to the
stream that the weights are repacked on, so their order alone keeps both right.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile, TensorInfo
from engine.gguf.quants import QuantType, row_bytes

PIECE: Final = 8 << 20  # bytes of one read and one copy
STAGES: Final = 32  # pieces of pinned memory: what is read or on its way at a time
THREADS: Final = min(12, os.cpu_count() or 1)
_PLAIN: Final = {QuantType.F32: torch.float32, QuantType.F16: torch.float16, QuantType.I32: torch.int32}


class FileSource:
    """The tensors of one file by name, for one device; `told` hears how many more bytes are on their way.

    A context manager: leaving it ends the threads and gives the pinned memory back.
    """

    def __init__(
        self,
        file: GGUFFile,
        device: torch.device,
        *,
        threads: int = THREADS,
        piece: int = PIECE,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._file, self._device, self._piece, self._told = file, device, piece, told
        self._shared = device.type == "cuda" and torch.cuda.get_device_properties(device).is_integrated
        self._descriptor = os.open(file.path, os.O_RDONLY)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="reader")
        self._free = deque(_Stage(piece, device) for _ in range(STAGES))

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._free.clear()
        os.close(self._descriptor)

    def type(self, name: str) -> QuantType:
        """The block format a tensor has in the file."""
        return self._file.tensors[name].type

    def raw(self, name: str) -> Tensor:
        """Bytes of a tensor, uint8 [..., rows, bytes a row]; plain types in their own type.

        Returns when all of it is on its way; ModelFileError where the file has become shorter.
        """
        info = self._file.tensors[name]
        data = torch.empty(info.nbytes, dtype=torch.uint8, device=self._device)
        reading: deque[tuple[Tensor, _Stage, Future[None]]] = deque()
        for part, start in zip(data.split(self._piece), range(0, info.nbytes, self._piece), strict=True):
            if not self._free:
                self._send(*reading.popleft())
            stage = self._free.popleft()
            reading.append(
                (part, stage, self._pool.submit(self._read, stage, info, info.offset + start, len(part)))
            )
        while reading:
            self._send(*reading.popleft())
        if self._shared:  # the file's pages take memory that the device needs; they have been read
            os.posix_fadvise(self._descriptor, info.offset, info.nbytes, os.POSIX_FADV_DONTNEED)
        plain = _PLAIN.get(info.type)
        if plain is not None:
            return data.view(plain).view(info.shape)
        return data.view(*info.shape[:-1], row_bytes(info.type, info.shape[-1]))

    def _read(self, stage: _Stage, info: TensorInfo, offset: int, count: int) -> None:
        stage.wait()
        done = 0
        while done < count:
            got = os.preadv(self._descriptor, [stage.bytes[done:count]], offset + done)
            if not got:
                raise ModelFileError(
                    f"{self._file.path}: tensor {info.name!r} needs bytes up to {info.offset + info.nbytes}, "
                    f"but the file now ends at {offset + done}; it was changed while it was read"
                )
            done += got

    def _send(self, part: Tensor, stage: _Stage, read: Future[None]) -> None:
        read.result()
        stage.send(part)
        self._free.append(stage)
        self._told(len(part))


class _Stage:
    """A piece of host memory, pinned where the device is an accelerator, and when it may be written again."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self._memory = torch.empty(nbytes, dtype=torch.uint8, pin_memory=pinned)
        self._sent = torch.cuda.Event() if pinned else None
        self.bytes = self._memory.numpy().data

    def wait(self) -> None:
        """Until the last copy out of it is done."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self, part: Tensor) -> None:
        """Start the copy of its first bytes to `part`."""
        part.copy_(self._memory[: len(part)], non_blocking=True)
        if self._sent is not None:
            self._sent.record()
