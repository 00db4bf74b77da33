"""The file of one kept sequence: its form, and everything that must be right before it is used.  No torch.

```
| magic 8 | header length 4 | sha256 of header 32 | header, JSON | token ids, int32 | arrays in a row |
```
The header names model and layout (`fingerprint`), tenant, anchors, the client's wish to pin it, digests, and
type and shape of each array.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"SPKGKV02"
HEADER_MAX = 1 << 20  # bytes
TOKENS_MAX = 1 << 20  # no context is longer
ITEM_MAX = 8  # bytes of a number
FIXED = struct.Struct("<8sI32s")
KINDS = frozenset("biuf")  # of numbers that an array may hold

Ids = NDArray[np.int32]
Arrays = Mapping[str, NDArray[Any]]


class DamagedError(Exception):
    """A file that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """A kept sequence: whose it is, its ids, and the positions that one can start from besides its end.

    `pin`: whether a client asked to pin it, or not to.
    """

    tenant: str
    tokens: Ids
    anchors: tuple[int, ...]
    pin: bool | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """All positions one can start from."""
        return (*self.anchors, len(self.tokens))


@dataclass(frozen=True, slots=True)
class _Array:
    """Where one array lies behind the ids, and what it is."""

    name: str
    kind: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize


@dataclass(frozen=True, slots=True)
class _Header:
    prefix: Prefix
    arrays: tuple[_Array, ...]
    digest: str  # of all arrays in a row


def layout(fingerprint: str, prefix: Prefix, arrays: Arrays) -> list[bytes | memoryview]:
    """What to write, piece by piece; the first piece is different for every other file."""
    parts = [_memory(array) for array in arrays.values()]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    ids = _memory(np.asarray(prefix.tokens, np.int32))
    header = {
        "fingerprint": fingerprint,
        "tenant": prefix.tenant,
        "anchors": list(prefix.anchors),
        "pin": prefix.pin,
        "tokens": len(prefix.tokens),
        "ids_sha256": hashlib.sha256(ids).hexdigest(),
        "arrays": [
            {"name": name, "type": array.dtype.str, "shape": list(array.shape)}
            for name, array in arrays.items()
        ],
        "arrays_sha256": whole.hexdigest(),
    }
    text = json.dumps(header).encode()
    return [FIXED.pack(MAGIC, len(text), hashlib.sha256(text).digest()) + text, ids, *parts]


def read_prefix(path: Path, fingerprint: str) -> Prefix:
    """Which sequence a file holds; DamagedError or OSError when it cannot be used."""
    with open_regular(path) as file:
        return _read_header(file, fingerprint).prefix


def read_arrays(path: Path, fingerprint: str, prefix: Prefix) -> dict[str, NDArray[Any]]:
    """The arrays of a file; DamagedError or OSError when it cannot be used, or holds another sequence now."""
    with open_regular(path) as file:
        header = _read_header(file, fingerprint)
        if not _equal(header.prefix, prefix):
            raise DamagedError("another sequence is in its place")
        data = bytearray(sum(entry.nbytes for entry in header.arrays))
        if file.readinto(data) != len(data):
            raise DamagedError("it was cut while it was read")
    if hashlib.sha256(data).hexdigest() != header.digest:
        raise DamagedError("its rows are damaged")
    try:
        return _cut(data, header.arrays)
    except ValueError as error:  # sizes that no array can have
        raise DamagedError(f"its arrays cannot be: {error}") from None


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a file to read; DamagedError for what is no file, such as a pipe, which would be waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DamagedError("it is no regular file")
        yield file


def _cut(data: bytearray, arrays: tuple[_Array, ...]) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    at = 0
    for entry in arrays:
        found[entry.name] = np.frombuffer(data, entry.kind, math.prod(entry.shape), at).reshape(entry.shape)
        at += entry.nbytes
    return found


def _equal(one: Prefix, other: Prefix) -> bool:
    """The same sequence of the same tenant, with the same positions to start from."""
    return (one.tenant, one.anchors) == (other.tenant, other.anchors) and np.array_equal(
        one.tokens, other.tokens
    )


def _read_header(file: BufferedReader, fingerprint: str) -> _Header:
    """Header and ids; the file stands at its arrays then, all of which are there."""
    head = file.read(FIXED.size)
    if len(head) < FIXED.size or not head.startswith(MAGIC):
        raise DamagedError("it is no file of this kind or version")
    _, length, digest = FIXED.unpack(head)
    text = file.read(min(length, HEADER_MAX))
    if length > HEADER_MAX or hashlib.sha256(text).digest() != digest:
        raise DamagedError("its header is damaged")
    try:
        found = json.loads(text)
        if found["fingerprint"] != fingerprint:
            raise DamagedError("it belongs to another model, layout or rounding")
        arrays = tuple(_array(entry) for entry in found["arrays"])
        count, anchors = int(found["tokens"]), tuple(int(place) for place in found["anchors"])
        if not all(0 < place <= count for place in anchors):
            raise DamagedError("its anchors lie outside of it")
        if count > TOKENS_MAX:
            raise DamagedError("it is longer than any context")
        end = file.tell() + 4 * count + sum(entry.nbytes for entry in arrays)
        if end != os.fstat(file.fileno()).st_size:
            raise DamagedError("its length is wrong")
        ids = file.read(4 * count)
        if hashlib.sha256(ids).hexdigest() != found["ids_sha256"]:
            raise DamagedError("its token ids are damaged")
        pin = None if found["pin"] is None else bool(found["pin"])
        prefix = Prefix(str(found["tenant"]), np.frombuffer(ids, np.int32), anchors, pin)
        return _Header(prefix, arrays, str(found["arrays_sha256"]))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"its header is of another version ({type(error).__name__})") from None


def _array(entry: Mapping[str, Any]) -> _Array:
    kind, shape = np.dtype(entry["type"]), tuple(int(size) for size in entry["shape"])
    known = kind.kind in KINDS and kind.isnative and kind.itemsize <= ITEM_MAX
    if not known or min(shape, default=0) < 0:
        raise ValueError(kind)
    return _Array(str(entry["name"]), kind, shape)


def _memory(array: NDArray[Any]) -> memoryview:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
