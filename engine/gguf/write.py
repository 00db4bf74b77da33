"""Writing a GGUF container (version 3, little endian), one tensor after the other, in constant memory.

The directory is laid out before any data exists, so what the file will need is known before it is begun, and
it gets its name only when it is whole.  Knows nothing of which keys or tensors a model must have.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO, Final

from engine.errors import EngineError
from engine.gguf.file import MetaKind, TensorInfo
from engine.gguf.quants import Bytes, QuantType, row_bytes

ALIGNMENT: Final = 32
_VERSION: Final = 3
_NUMBERS: Final = {MetaKind.U32: "<I", MetaKind.I32: "<i", MetaKind.F32: "<f", MetaKind.BOOL: "<?"}


@dataclass(frozen=True, slots=True)
class Layout:
    """A file before it is written: all bytes in front of the data, where each tensor goes, and the size."""

    head: bytes
    tensors: tuple[TensorInfo, ...]
    nbytes: int

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors, without what lies between them."""
        return sum(info.nbytes for info in self.tensors)


def lay_out(
    metadata: Mapping[str, object], tensors: Iterable[tuple[str, tuple[int, ...], QuantType]]
) -> Layout:
    """The layout of a file with these keys and these tensors: name, shape (inner dimension last), format.

    Of the metadata int means u32, float f32, a list of int or float an i32 or f32 array.
    """
    placed, end = [], 0
    for name, shape, kind in tensors:
        nbytes = prod(shape[:-1]) * row_bytes(kind, shape[-1])
        placed.append(TensorInfo(name=name, shape=shape, type=kind, offset=_aligned(end), nbytes=nbytes))
        end = placed[-1].offset + nbytes
    head = b"GGUF" + struct.pack("<IQQ", _VERSION, len(placed), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    head += b"".join(map(_entry, placed))
    head += bytes(_aligned(len(head)) - len(head))
    moved = tuple(
        TensorInfo(info.name, info.shape, info.type, len(head) + info.offset, info.nbytes) for info in placed
    )
    return Layout(head, moved, len(head) + end)


def write(path: Path, layout: Layout, data: Callable[[TensorInfo], Iterable[Bytes]]) -> None:
    """Write the file; `data` gives the bytes of a tensor in pieces, each used before the next is asked for.

    EngineError with the numbers when the disk lacks the space, before anything is written or on the way,
    and for a path that is no file, such as a device; whatever goes wrong, no part of a file is left.
    """
    path = path.resolve()  # a link stays one, and its target is what is replaced
    if path.exists() and not path.is_file():
        raise EngineError(f"{path} is there and is no file; name a new file, or one that may be replaced")
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)  # of a writer that was killed: its room is needed
        _check_space(path, layout)
        with partial.open("wb", buffering=0) as file:
            _write_all(file, layout, data)
        partial.replace(path)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        raise EngineError(
            f"{path}: {error.strerror} while {layout.nbytes} bytes were to be written and {free} are free; "
            "make room or name a file elsewhere"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _check_space(path: Path, layout: Layout) -> None:
    free = shutil.disk_usage(path.parent).free
    if layout.nbytes > free:
        raise EngineError(
            f"{path} needs {layout.nbytes} bytes ({layout.nbytes / 2**30:.2f} GiB) and {free} "
            f"({free / 2**30:.2f} GiB) are free in its folder; make room, name another folder "
            "or write fewer layers"
        )


def _write_all(file: BinaryIO, layout: Layout, data: Callable[[TensorInfo], Iterable[Bytes]]) -> None:
    _put(file, layout.head)
    at = len(layout.head)
    for info in layout.tensors:
        _put(file, bytes(info.offset - at))
        at = info.offset
        for piece in data(info):
            _put(file, piece.data)
            at += len(piece)
        if at != info.offset + info.nbytes:
            raise EngineError(
                f"tensor {info.name!r} has {info.nbytes} bytes, its data had {at - info.offset}"
            )


def _put(file: BinaryIO, piece: bytes | memoryview) -> None:
    """All of it: one call writes at most 2 GiB, and less where a signal comes."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _entry(info: TensorInfo) -> bytes:
    dims = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *reversed(info.shape))
    return _text(info.name) + dims + struct.pack("<IQ", info.type, info.offset)


def _value(value: object) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", MetaKind.STRING) + _text(value)
    if isinstance(value, Sequence):
        kind = MetaKind.I32 if all(type(item) is int for item in value) else MetaKind.F32
        items = b"".join(struct.pack(_NUMBERS[kind], item) for item in value)
        return struct.pack("<IIQ", MetaKind.ARRAY, kind, len(value)) + items
    kind = {bool: MetaKind.BOOL, int: MetaKind.U32, float: MetaKind.F32}[type(value)]
    return struct.pack("<I", kind) + struct.pack(_NUMBERS[kind], value)
