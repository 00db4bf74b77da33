"""Kept sequences on disk: files that survive the process, found again by what they begin with.

A file that is torn, changed, or of another model or layout is never used: it is a log line and no prefix.
Knows arrays and token ids, not what they mean.  No torch.

```
| magic 8 | header length 4 | sha256 of header 32 | header, JSON | token ids, int32 | arrays in a row |
```
Files hold prompts and model state: the directory and the files are for their owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
import tempfile
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger("engine.cache")
MAGIC = b"SPKGKV01"
SUFFIX, UNFINISHED = ".kv", ".part"
HEADER_MAX = 1 << 20  # bytes
WAITING_MAX = 2  # files that are being written: what comes beyond is not stored
LEAST_TOKENS = 256  # shorter sequences are computed again as fast
REGROWN = 1.25  # a sequence is stored anew when it is so much longer than what is stored of it

Ids = NDArray[np.int32]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Stored:
    """One file: whose it is, its ids, and the positions that one can start from."""

    path: Path
    tenant: str
    tokens: Ids
    anchors: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """A file, and how many tokens of a prompt it saves."""

    stored: Stored
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Writing:
    """A file in the making."""

    tenant: str
    tokens: Ids
    result: Future[Stored | None]


class DamagedError(Exception):
    """A file that cannot be used; the message says why."""


class Shelf:
    """The files of one directory that fit one model; `budget` bytes together, the oldest go first.

    `fingerprint` names model, layout and roundings: files of another one are left alone and not used.
    """

    def __init__(
        self, directory: Path, *, fingerprint: str, budget: int, writer: Executor | None = None
    ) -> None:
        """Find what is there already; OSError when the directory cannot be made or read.

        `writer` writes the files; None makes one thread for them.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._directory = directory
        self._fingerprint = fingerprint
        self._budget = budget
        self._stored: list[Stored] = []  # oldest first
        self._writing: list[Writing] = []
        self._writer = writer or ThreadPoolExecutor(1, thread_name_prefix="shelf")
        self._scan()

    def __len__(self) -> int:
        return len(self._stored)

    def best(self, tenant: str, prompt: Ids) -> Found | None:
        """The file that saves most of a prompt; at least one token is left to compute."""
        self._reap()
        mine = [entry for entry in self._stored if entry.tenant == _name(tenant)]
        found = [Found(entry, self._place(entry, prompt)) for entry in mine]
        best = max(found, key=lambda entry: entry.place, default=None)
        return best if best is not None and best.place >= LEAST_TOKENS else None

    def wants(self, tenant: str, tokens: Ids, *, exactly: bool) -> bool:
        """Whether a sequence is worth a file: long and not stored, nor, if not `exactly`, most of it."""
        self._reap()
        known: list[Stored | Writing] = [*self._stored, *self._writing]
        longest = max(
            (
                len(entry.tokens)
                for entry in known
                if entry.tenant == _name(tenant) and _same(entry.tokens, tokens, len(entry.tokens))
            ),
            default=0,
        )
        enough = longest + 1 if exactly else REGROWN * longest
        return len(tokens) >= max(LEAST_TOKENS, enough) and len(self._writing) < WAITING_MAX

    def put(self, tenant: str, tokens: Ids, anchors: tuple[int, ...], arrays: Arrays) -> None:
        """Write a file, beside everything else; a full disk is a log line."""
        result = self._writer.submit(self._write, _name(tenant), tokens, anchors, arrays)
        self._writing.append(Writing(_name(tenant), tokens, result))

    def load(self, stored: Stored) -> dict[str, NDArray[Any]] | None:
        """The arrays of a file; None, and the file is gone, when it is damaged."""
        try:
            return _read(stored.path, self._fingerprint)[1]
        except (DamagedError, OSError) as error:
            log.warning("event=stored_prefix_unusable file=%s reason=%s", stored.path.name, error)
            self._drop(stored)
            return None

    def close(self) -> None:
        """Finish what is being written."""
        self._writer.shutdown()
        self._reap()

    def settle(self) -> None:
        """Wait for what is being written."""
        for entry in self._writing:
            entry.result.result()
        self._reap()

    def _place(self, entry: Stored, prompt: Ids) -> int:
        places = sorted((*entry.anchors, len(entry.tokens)), reverse=True)
        return next(
            (place for place in places if place < len(prompt) and _same(entry.tokens, prompt, place)), 0
        )

    def _reap(self) -> None:
        """Take in what was written, delete what it replaces, and the oldest beyond the budget."""
        done = [entry for entry in self._writing if entry.result.done()]
        self._writing = [entry for entry in self._writing if entry not in done]
        for stored in (entry.result.result() for entry in done):
            if stored is None:
                continue
            for old in [entry for entry in self._stored if _replaces(stored, entry)]:
                self._drop(old, unless=stored.path)
            self._stored.append(stored)
        while len(self._stored) > 1 and sum(entry.nbytes for entry in self._stored) > self._budget:
            self._drop(self._stored[0])

    def _scan(self) -> None:
        for path in sorted(self._directory.glob(f"*{UNFINISHED}")):
            path.unlink(missing_ok=True)  # left by a process that was killed
        for path in sorted(self._directory.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime):
            try:
                self._stored.append(_read(path, self._fingerprint, arrays=False)[0])
            except (DamagedError, OSError) as error:
                log.warning("event=stored_prefix_ignored file=%s reason=%s", path.name, error)
        log.info("event=shelf_opened files=%d", len(self._stored))

    def _write(self, tenant: str, tokens: Ids, anchors: tuple[int, ...], arrays: Arrays) -> Stored | None:
        header, parts = _layout(self._fingerprint, tenant, tokens, anchors, arrays)
        path = self._directory / (hashlib.sha256(header).hexdigest()[:40] + SUFFIX)
        try:
            with tempfile.NamedTemporaryFile(dir=self._directory, suffix=UNFINISHED, delete=False) as file:
                try:
                    file.write(MAGIC + struct.pack("<I", len(header)) + _digest(header) + header)
                    for part in parts:
                        file.write(part)
                    size = file.tell()
                    file.flush()
                    os.fsync(file.fileno())
                    Path(file.name).replace(path)  # made with mode 0600
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            log.warning("event=prefix_not_stored tokens=%d reason=%s", len(tokens), error)
            return None
        return Stored(path, tenant, tokens, anchors, size)

    def _drop(self, stored: Stored, *, unless: Path | None = None) -> None:
        self._stored.remove(stored)
        if stored.path != unless:
            with contextlib.suppress(OSError):
                stored.path.unlink(missing_ok=True)


def _replaces(new: Stored, old: Stored) -> bool:
    """Everything that the old file could serve, the new one serves too."""
    places = {*new.anchors, len(new.tokens)}
    same = new.tenant == old.tenant and _same(new.tokens, old.tokens, len(old.tokens))
    return new.path == old.path or (same and {*old.anchors, len(old.tokens)} <= places)


def _name(tenant: str) -> str:
    """A tenant as files know it."""
    return hashlib.sha256(tenant.encode()).hexdigest()


def _same(one: Ids, other: Ids, count: int) -> bool:
    return len(one) >= count and len(other) >= count and np.array_equal(one[:count], other[:count])


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _bytes(array: NDArray[Any]) -> memoryview:
    """The memory of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _layout(
    fingerprint: str, tenant: str, tokens: Ids, anchors: tuple[int, ...], arrays: Arrays
) -> tuple[bytes, list[memoryview]]:
    """Header and parts of a file."""
    parts = [_bytes(array) for array in arrays.values()]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    ids = _bytes(np.asarray(tokens, np.int32))
    header = {
        "fingerprint": fingerprint,
        "tenant": tenant,
        "anchors": list(anchors),
        "tokens": len(tokens),
        "ids_sha256": hashlib.sha256(ids).hexdigest(),
        "arrays": [
            {"name": name, "type": array.dtype.str, "shape": list(array.shape)}
            for name, array in arrays.items()
        ],
        "arrays_sha256": whole.hexdigest(),
    }
    return json.dumps(header).encode(), [ids, *parts]


def _read(path: Path, fingerprint: str, *, arrays: bool = True) -> tuple[Stored, dict[str, NDArray[Any]]]:
    """A file's entry, and its arrays if they are wanted; DamagedError or OSError when it cannot be used."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(len(MAGIC) + 36)
        if len(head) < len(MAGIC) + 36 or not head.startswith(MAGIC):
            raise DamagedError("it is no file of this kind or version")
        length = struct.unpack_from("<I", head, len(MAGIC))[0]
        text = file.read(min(length, HEADER_MAX))
        if length > HEADER_MAX or _digest(text) != head[-32:]:
            raise DamagedError("its header is damaged")
        header = json.loads(text)  # of our own writing: its digest is right
        if header["fingerprint"] != fingerprint:
            raise DamagedError("it belongs to another model, layout or rounding")
        shapes = [
            (entry["name"], np.dtype(entry["type"]), tuple(entry["shape"])) for entry in header["arrays"]
        ]
        sizes = [int(np.prod(shape, dtype=np.int64)) * kind.itemsize for _, kind, shape in shapes]
        if file.tell() + 4 * header["tokens"] + sum(sizes) != size:
            raise DamagedError("its length is wrong")
        ids = file.read(4 * header["tokens"])
        if hashlib.sha256(ids).hexdigest() != header["ids_sha256"]:
            raise DamagedError("its token ids are damaged")
        tokens = np.frombuffer(ids, np.int32)
        stored = Stored(path, header["tenant"], tokens, tuple(header["anchors"]), size)
        data = bytearray(sum(sizes) if arrays else 0)
        if arrays and file.readinto(data) != len(data):
            raise DamagedError("it was cut while it was read")
        return stored, _arrays(data, shapes, sizes, header["arrays_sha256"]) if arrays else {}


def _arrays(
    data: bytearray, shapes: list[tuple[str, np.dtype[Any], tuple[int, ...]]], sizes: list[int], digest: str
) -> dict[str, NDArray[Any]]:
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamagedError("its rows are damaged")
    found: dict[str, NDArray[Any]] = {}
    at = 0
    for (name, kind, shape), size in zip(shapes, sizes, strict=True):
        found[name] = np.frombuffer(data, kind, size // max(1, kind.itemsize), at).reshape(shape)
        at += size
    return found
