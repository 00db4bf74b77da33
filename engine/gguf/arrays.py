"""Arrays of metadata as sequences of Python values that stay in the mapped file until they are asked for.

A hostile file can therefore not make a reader hold many times its own size.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

_U64: Final = struct.Struct("<Q")
_STRIDE: Final = 4096


class NumberArray(Sequence[int | float | bool]):
    """An array of numbers or booleans: items are Python numbers, `np.asarray` gives the typed view."""

    __slots__ = ("_values",)

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> int | float | bool: ...
    @overload
    def __getitem__(self, index: slice) -> list[int | float | bool]: ...
    def __getitem__(self, index: int | slice) -> int | float | bool | list[int | float | bool]:
        found: int | float | bool | list[int | float | bool] = self._values[index].tolist()
        return found

    def __iter__(self) -> Iterator[int | float | bool]:
        for start in range(0, len(self._values), _STRIDE):
            yield from self._values[start : start + _STRIDE].tolist()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self._values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"NumberArray({len(self)} of {self._values.dtype.name})"


class StringArray(Sequence[str]):
    """An array of strings, each kept as the place of its first byte; the 8 bytes before are its length."""

    __slots__ = ("_buffer", "_starts")

    def __init__(self, buffer: mmap, starts: array[int]) -> None:
        self._buffer = buffer
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._text(start) for start in self._starts[index]]
        return self._text(self._starts[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._text, self._starts)

    def __repr__(self) -> str:
        return f"StringArray({len(self)} strings)"

    def _text(self, start: int) -> str:
        (length,) = _U64.unpack_from(self._buffer, start - 8)
        return str(self._buffer[start : start + length], "utf-8")
