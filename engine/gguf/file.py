"""Reading a GGUF container (version 3, little endian): metadata and where each tensor lies.

Every count, length, offset and product is checked against the file before it is used.
The structure is mapped; tensors are read, so that a file which shrinks meanwhile is an error and does not end
the process.
Knows nothing of which keys or tensors a model must have.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import IntEnum
from itertools import pairwise
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError
from engine.gguf.arrays import NumberArray, StringArray
from engine.gguf.cursor import Cursor, quote
from engine.gguf.quants import Bytes, QuantType, block, decode

MetaValue = bool | int | float | str | NumberArray | StringArray

_VERSION: Final = 3
_PIECE: Final = 64 << 20  # bytes of one read; the system gives at most 2 GiB
_DEFAULT_ALIGNMENT: Final = 32
_MAX_ALIGNMENT: Final = 1 << 20
_MAX_KEYS: Final = 16_384
_MAX_TENSORS: Final = 16_384
_MAX_KEY_BYTES: Final = 65_535
_MAX_NAME_BYTES: Final = 64
_MAX_STRING_BYTES: Final = 4 << 20
_MAX_DIMS: Final = 4
# What people often have instead of a model file, by its first bytes.
_FOREIGN: Final = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself"),
    (b"FUGG", "a big-endian GGUF file; convert it to little endian"),
    (b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint"),
    (b"<", "a web page, such as a failed download"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGJT file from before GGUF"),
)


class MetaKind(IntEnum):
    """Kinds of metadata values; the numbers are those of the container format."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    U64 = 10
    I64 = 11
    F64 = 12


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: `shape` has the inner dimension last, `offset` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: QuantType
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class GGUFFile:
    """An open model file; `kinds` tells the stored type of each number (for an array: of its items)."""

    path: Path
    metadata: Mapping[str, MetaValue]
    kinds: Mapping[str, MetaKind]
    tensors: Mapping[str, TensorInfo]
    alignment: int
    _reader: _Reader

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Map a file and check all of its structure; ModelFileError says what is wrong with it."""
        path = Path(path)
        reader = _Reader(path)
        buffer = reader.mapped()
        cursor = Cursor(buffer, str(path))
        _check_magic(cursor, buffer[:32])
        n_tensors = cursor.count("the number of tensors", each=33, most=_MAX_TENSORS)
        n_keys = cursor.count("the number of keys", each=14, most=_MAX_KEYS)
        metadata, kinds = _read_metadata(cursor, n_keys)
        alignment = _alignment(cursor, metadata, kinds)
        tensors = _read_tensors(cursor, n_tensors, alignment, len(buffer))
        return cls(
            path=path,
            metadata=MappingProxyType(metadata),
            kinds=MappingProxyType(kinds),
            tensors=MappingProxyType(tensors),
            alignment=alignment,
            _reader=reader,
        )

    def raw(self, name: str, most: int | None = None) -> Bytes:
        """Bytes of a tensor, or at most the first ones, read-only; ModelFileError where the file was cut."""
        info = self._info(name)
        count = info.nbytes if most is None else min(most, info.nbytes)
        return self._reader.read(info, count)

    def array(self, name: str) -> npt.NDArray[Any]:
        """A tensor decoded to a new float32 (or int32) array of its shape."""
        info = self._info(name)
        return decode(self.raw(name), info.type, info.shape)

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            near = get_close_matches(name, self.tensors, n=1)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise ModelFileError(f"{self.path}: no tensor {quote(name)} among {len(self.tensors)}{hint}")
        return info


class _Reader:
    """A regular, non-empty file, open as long as this lives; ModelFileError where it cannot be."""

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor = path, -1
        try:
            found = path.stat()  # before it is opened: a pipe would wait for its writer
            if not stat.S_ISREG(found.st_mode):
                raise ModelFileError(f"{path}: a model is a regular file, found something else")
            if found.st_size < 24:
                raise ModelFileError(f"{path}: {found.st_size} bytes long, a GGUF header alone has 24")
            self._descriptor = os.open(path, os.O_RDONLY)
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path}: the file cannot be opened: {error}") from None

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def mapped(self) -> mmap:
        """All of it as a mapping, for its structure."""
        try:
            return mmap(self._descriptor, 0, access=ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{self._path}: the file cannot be mapped: {error}") from None

    def read(self, info: TensorInfo, count: int) -> Bytes:
        """The first so many bytes of a tensor."""
        data = np.empty(count, np.uint8)
        done = 0
        while done < count:
            try:
                got = os.preadv(self._descriptor, [data[done : done + _PIECE].data], info.offset + done)
            except OSError as error:
                raise ModelFileError(f"{self._path}: it cannot be read: {error.strerror}") from None
            if not got:
                raise ModelFileError(
                    f"{self._path}: tensor {quote(info.name)} needs bytes up to {info.offset + info.nbytes}, "
                    f"but the file now ends at {info.offset + done}; it was changed while it was read"
                )
            done += got
        data.flags.writeable = False
        return data


def _check_magic(cursor: Cursor, head: bytes) -> None:
    if head[:4] != b"GGUF":
        looks = next((f"; it looks like {name}" for start, name in _FOREIGN if head.startswith(start)), "")
        raise cursor.fail(f"not a GGUF file: it begins with {head[:4]!r}, allowed is b'GGUF'{looks}")
    cursor.need(4, "the magic")
    version = cursor.u32("the version")
    if version == int.from_bytes(_VERSION.to_bytes(4, "big"), "little"):
        raise cursor.fail("a big-endian GGUF file, allowed is little endian; convert it")
    if version != _VERSION:
        raise cursor.fail(f"GGUF version {version}, allowed is {_VERSION}; convert the file again")


_DTYPES: Final[Mapping[MetaKind, np.dtype[Any]]] = MappingProxyType(
    {
        MetaKind.U8: np.dtype("<u1"),
        MetaKind.I8: np.dtype("<i1"),
        MetaKind.U16: np.dtype("<u2"),
        MetaKind.I16: np.dtype("<i2"),
        MetaKind.U32: np.dtype("<u4"),
        MetaKind.I32: np.dtype("<i4"),
        MetaKind.F32: np.dtype("<f4"),
        MetaKind.U64: np.dtype("<u8"),
        MetaKind.I64: np.dtype("<i8"),
        MetaKind.F64: np.dtype("<f8"),
    }
)


def _read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, MetaValue], dict[str, MetaKind]]:
    metadata: dict[str, MetaValue] = {}
    kinds: dict[str, MetaKind] = {}
    for index in range(count):
        key = _read_name(cursor, f"key {index} of {count}", most=_MAX_KEY_BYTES)
        what = f"key {quote(key)}"
        if key in metadata:
            raise cursor.fail(f"{what} appears twice, allowed is once")
        kind = _read_kind(cursor, what)
        if kind is MetaKind.ARRAY:
            kind, metadata[key] = _read_array(cursor, what)
        elif kind is MetaKind.STRING:
            metadata[key] = cursor.text(f"the string of {what}", most=_MAX_STRING_BYTES)
        elif kind is MetaKind.BOOL:
            metadata[key] = bool(_check_bools(cursor, cursor.numbers(np.dtype("u1"), 1, what), what)[0])
        else:
            metadata[key] = cursor.value(_DTYPES[kind], what)
        kinds[key] = kind
    return metadata, kinds


def _read_name(cursor: Cursor, what: str, *, most: int) -> str:
    name = cursor.text(what, most=most)
    if not name:
        raise cursor.fail(f"{what} is empty, allowed are 1 to {most} bytes")
    return name


def _read_kind(cursor: Cursor, what: str) -> MetaKind:
    number = cursor.u32(f"the type of {what}")
    try:
        return MetaKind(number)
    except ValueError:
        raise cursor.fail(f"{what} has value type {number}, allowed are 0 to {max(MetaKind)}") from None


def _read_array(cursor: Cursor, what: str) -> tuple[MetaKind, MetaValue]:
    kind = _read_kind(cursor, f"the items of {what}")
    if kind is MetaKind.ARRAY:
        raise cursor.fail(f"{what} is an array of arrays, allowed are arrays of numbers, booleans or strings")
    length = f"the length of {what}"
    if kind is MetaKind.STRING:
        return kind, cursor.strings(cursor.count(length, each=8), what)
    dtype = np.dtype("u1") if kind is MetaKind.BOOL else _DTYPES[kind]
    values = cursor.numbers(dtype, cursor.count(length, each=dtype.itemsize), what)
    return kind, NumberArray(_check_bools(cursor, values, what) if kind is MetaKind.BOOL else values)


def _check_bools(cursor: Cursor, flags: npt.NDArray[Any], what: str) -> npt.NDArray[np.bool_]:
    if flags.size and flags.max() > 1:
        raise cursor.fail(f"{what} holds a boolean of value {flags.max()}, allowed are 0 and 1")
    return flags.view(np.bool_)


def _alignment(cursor: Cursor, metadata: Mapping[str, MetaValue], kinds: Mapping[str, MetaKind]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if kinds.get("general.alignment", MetaKind.U32) is not MetaKind.U32 or not isinstance(value, int):
        raise cursor.fail("key 'general.alignment' is not a u32 number")
    if not 8 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise cursor.fail(
            f"key 'general.alignment' is {value}, allowed are powers of two from 8 to {_MAX_ALIGNMENT}"
        )
    return value


def _read_tensors(cursor: Cursor, count: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """The tensor directory, with offsets made absolute and every span proven inside the file."""
    found: dict[str, TensorInfo] = {}
    for index in range(count):
        info = _read_tensor(cursor, f"tensor {index} of {count}", alignment)
        if info.name in found:
            raise cursor.fail(f"tensor {quote(info.name)} appears twice, allowed is once")
        found[info.name] = info
    base = -(-cursor.position // alignment) * alignment
    tensors = {name: _place(cursor, info, base, size) for name, info in found.items()}
    ordered = sorted(tensors.values(), key=lambda info: info.offset)
    for before, after in pairwise(ordered):
        if before.offset + before.nbytes > after.offset:
            raise cursor.fail(
                f"tensors {quote(before.name)} and {quote(after.name)} overlap: the first ends at "
                f"{before.offset + before.nbytes}, the second begins at {after.offset}"
            )
    return tensors


def _read_tensor(cursor: Cursor, what: str, alignment: int) -> TensorInfo:
    """One directory entry; its offset still counts from the start of the data."""
    name = _read_name(cursor, f"the name of {what}", most=_MAX_NAME_BYTES)
    what = f"tensor {quote(name)}"
    n_dims = cursor.u32(f"the number of dimensions of {what}")
    if not 1 <= n_dims <= _MAX_DIMS:
        raise cursor.fail(f"{what} has {n_dims} dimensions, allowed are 1 to {_MAX_DIMS}")
    dims = [cursor.u64(f"dimension {i} of {what}") for i in range(n_dims)]
    if not all(dims) or prod(dims) >= 1 << 63:
        raise cursor.fail(f"{what} has dimensions {dims}, allowed are 1 or more with a product below 2^63")
    type = _read_type(cursor, what)
    size = block(type)
    if dims[0] % size.values:
        raise cursor.fail(
            f"{what} is {type.name} with rows of {dims[0]} values, allowed are multiples of {size.values}"
        )
    offset = cursor.u64(f"the offset of {what}")
    if offset % alignment:
        raise cursor.fail(f"{what} has offset {offset}, allowed are multiples of the alignment {alignment}")
    nbytes = prod(dims) // size.values * size.nbytes
    return TensorInfo(name=name, shape=tuple(reversed(dims)), type=type, offset=offset, nbytes=nbytes)


def _read_type(cursor: Cursor, what: str) -> QuantType:
    number = cursor.u32(f"the type of {what}")
    try:
        return QuantType(number)
    except ValueError:
        allowed = ", ".join(f"{t.name} ({t.value})" for t in QuantType)
        raise cursor.fail(f"{what} has tensor type {number}, allowed are {allowed}") from None


def _place(cursor: Cursor, info: TensorInfo, base: int, size: int) -> TensorInfo:
    """The same tensor with its offset from the start of the file."""
    start = base + info.offset
    if start + info.nbytes > size:
        raise cursor.fail(
            f"tensor {quote(info.name)} needs bytes {start} to {start + info.nbytes}, "
            f"but the file ends at {size}; it is truncated or damaged, fetch it again"
        )
    return replace(info, offset=start)
