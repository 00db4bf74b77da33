"""Checked reading of a byte buffer, front to back: nothing is used before it is known to lie inside the file.

Knows little-endian numbers, strings and how to say what was cut off; knows nothing of keys or tensors.
"""

from __future__ import annotations

import struct
from array import array
from mmap import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError
from engine.gguf.arrays import StringArray

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
# Text outside arrays, in all, and one string of an array.  Python may need four bytes for one of the file's,
# so these bounds keep the memory for text small; chat templates and vocabularies stay far below them.
_MAX_TEXT_BYTES: Final = 8 << 20
_MAX_ITEM_BYTES: Final = 65_535
_FETCH: Final = "it is truncated or damaged, fetch it again"


def quote(name: str) -> str:
    """A name from a file for a message: quoted, escaped, and cut where it is long."""
    return repr(name if len(name) <= 96 else name[:93] + "...")


class Cursor:
    """Reads one file forwards; each method raises ModelFileError naming `what` if the bytes are not there."""

    __slots__ = ("_buffer", "_path", "_size", "_text_bytes", "position")

    def __init__(self, buffer: mmap, path: str) -> None:
        self._buffer = buffer
        self._path = path
        self._size = len(buffer)
        self._text_bytes = 0
        self.position = 0

    def fail(self, message: str) -> ModelFileError:
        """An error about this file, to be raised by the caller."""
        return ModelFileError(f"{self._path}: {message}")

    def need(self, nbytes: int, what: str) -> int:
        """Claim the next bytes and return where they begin."""
        start = self.position
        if nbytes > self._size - start:
            raise self._cut(nbytes, what)
        self.position = start + nbytes
        return start

    def u32(self, what: str) -> int:
        """An unsigned 32-bit number."""
        return int(_U32.unpack_from(self._buffer, self.need(4, what))[0])

    def u64(self, what: str) -> int:
        """An unsigned 64-bit number."""
        return int(_U64.unpack_from(self._buffer, self.need(8, what))[0])

    def count(self, what: str, *, each: int, most: int | None = None) -> int:
        """A 64-bit count of items that take at least `each` bytes, checked against the rest of the file."""
        n = self.u64(what)
        left = self._size - self.position
        if n * each > left:
            raise self.fail(
                f"{what} is {n}, needing at least {n * each} bytes where the file has {left} left; {_FETCH}"
            )
        if most is not None and n > most:
            raise self.fail(f"{what} is {n}, allowed are up to {most}")
        return n

    def text(self, what: str, *, most: int) -> str:
        """A string of at most `most` bytes of UTF-8."""
        length = self.u64(f"the length of {what}")
        if length > most:
            raise self.fail(f"{what} is {length} bytes long, allowed are up to {most}")
        start = self.need(length, what)
        self._text_bytes += length
        if self._text_bytes > _MAX_TEXT_BYTES:
            raise self.fail(
                f"with {what} the file holds over {_MAX_TEXT_BYTES} bytes of keys, names and strings"
            )
        try:
            return str(self._buffer[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise self._not_utf8(what, start, error) from None

    def value(self, dtype: np.dtype[Any], what: str) -> bool | int | float:
        """One number as a Python number."""
        start = self.need(dtype.itemsize, what)
        result = np.frombuffer(self._buffer, dtype, 1, start)[0].item()
        assert isinstance(result, (bool, int, float))
        return result

    def numbers(self, dtype: np.dtype[Any], count: int, what: str) -> npt.NDArray[Any]:
        """An array of numbers, a read-only view of the file."""
        return np.frombuffer(self._buffer, dtype, count, self.need(dtype.itemsize * count, what))

    def strings(self, count: int, what: str) -> StringArray:
        """An array of `count` strings; all of them are checked here, none is kept."""
        starts = array("Q", [0]) * count
        buffer, size, position = self._buffer, self._size, self.position
        unpack = _U64.unpack_from
        for index in range(count):  # the hot loop of opening a file: 260,000 turns for a large vocabulary
            start = position + 8
            length = unpack(buffer, position)[0] if start <= size else size
            if length > _MAX_ITEM_BYTES or start + length > size:
                self.position = position
                raise self._bad_item(f"{what}[{index}]")
            try:
                str(buffer[start : start + length], "utf-8")
            except UnicodeDecodeError as error:
                raise self._not_utf8(f"{what}[{index}]", start, error) from None
            starts[index] = start
            position = start + length
        self.position = position
        return StringArray(buffer, starts)

    def _bad_item(self, what: str) -> ModelFileError:
        """Why the string at the present position does not fit."""
        length = self.u64(f"the length of {what}")
        if length > _MAX_ITEM_BYTES:
            return self.fail(f"{what} is {length} bytes long, allowed are up to {_MAX_ITEM_BYTES}")
        return self._cut(length, what)

    def _cut(self, nbytes: int, what: str) -> ModelFileError:
        return self.fail(
            f"{what} needs {nbytes} bytes at offset {self.position}, but the file ends at {self._size}; "
            + _FETCH
        )

    def _not_utf8(self, what: str, start: int, error: UnicodeDecodeError) -> ModelFileError:
        return self.fail(f"{what} at offset {start} is not UTF-8: {error.reason}")
