"""Writes GGUF bytes field by field, right or wrong on purpose, and remembers where each field lies.

Knows the container format only; nothing is checked here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)

FieldRole = Literal["magic", "version", "count", "length", "kind", "dims", "dim", "type", "offset", "value"]


@dataclass(frozen=True, slots=True)
class Field:
    """One number or text in the file: its place, its bytes and what it means."""

    role: FieldRole
    start: int
    nbytes: int


@dataclass(slots=True)
class Forge:
    """Bytes under construction."""

    data: bytearray = field(default_factory=bytearray)
    fields: list[Field] = field(default_factory=list)

    def put(self, role: FieldRole, raw: bytes) -> None:
        self.fields.append(Field(role, len(self.data), len(raw)))
        self.data += raw

    def u32(self, role: FieldRole, value: int) -> None:
        self.put(role, struct.pack("<I", value))

    def u64(self, role: FieldRole, value: int) -> None:
        self.put(role, struct.pack("<Q", value))

    def text(self, raw: bytes, *, length: int | None = None) -> None:
        self.u64("length", len(raw) if length is None else length)
        self.put("value", raw)

    def header(self, *, tensors: int, keys: int, magic: bytes = b"GGUF", version: int = 3) -> Forge:
        self.put("magic", magic)
        self.u32("version", version)
        self.u64("count", tensors)
        self.u64("count", keys)
        return self

    def key(self, name: bytes, kind: int, raw: bytes) -> Forge:
        """A key with a value of plain bytes."""
        self.text(name)
        self.u32("kind", kind)
        self.put("value", raw)
        return self

    def string(self, name: bytes, raw: bytes, *, length: int | None = None) -> Forge:
        self.text(name)
        self.u32("kind", STRING)
        self.text(raw, length=length)
        return self

    def array(self, name: bytes, kind: int, raw: bytes, *, count: int) -> Forge:
        """An array of numbers, or whatever the bytes say."""
        self.text(name)
        self.u32("kind", ARRAY)
        self.u32("kind", kind)
        self.u64("count", count)
        self.put("value", raw)
        return self

    def strings(self, name: bytes, items: list[bytes], *, count: int | None = None) -> Forge:
        self.array(name, STRING, b"", count=len(items) if count is None else count)
        for item in items:
            self.text(item)
        return self

    def tensor(
        self, name: bytes, dims: list[int], type: int, offset: int, *, n_dims: int | None = None
    ) -> Forge:
        self.text(name)
        self.u32("dims", len(dims) if n_dims is None else n_dims)
        for dim in dims:
            self.u64("dim", dim)
        self.u32("type", type)
        self.u64("offset", offset)
        return self

    def body(self, nbytes: int, *, alignment: int = 32) -> Forge:
        """Tensor data: padding up to the alignment, then bytes that count up."""
        self.data += bytes(-len(self.data) % alignment)
        self.put("value", bytes(i % 251 for i in range(nbytes)))
        return self


def sound() -> Forge:
    """A right file with a key of every kind and tensors of several types."""
    forge = Forge().header(tensors=4, keys=14)
    forge.string(b"general.architecture", b"deepseek4")
    forge.key(b"general.alignment", U32, struct.pack("<I", 64))
    formats = {
        U8: "<B",
        I8: "<b",
        U16: "<H",
        I16: "<h",
        I32: "<i",
        F32: "<f",
        U64: "<Q",
        I64: "<q",
        F64: "<d",
    }
    for kind, form in formats.items():
        forge.key(f"n.{kind}".encode(), kind, struct.pack(form, 7))
    forge.key(b"flag", BOOL, b"\1")
    forge.array(b"ratios", I32, struct.pack("<3i", 0, 4, -1), count=3)
    forge.strings(b"tokens", [b"a", b"", "\u0120\U0001f600".encode(), b"word"])
    forge.tensor(b"norm.weight", [16], 0, 0)
    forge.tensor(b"experts.weight", [256, 2, 3], 16, 64)
    forge.tensor(b"table", [6, 4], 26, 512)
    forge.tensor(b"out.weight", [64, 2], 8, 640)
    return forge.body(640 + 136, alignment=64)
