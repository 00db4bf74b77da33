"""Kept sequences on disk: files that survive the process, found again by what they begin with.

Owns the index of a directory, and a worker that does everything that may wait for a disk; whoever calls only
looks things up.  A file that is torn, changed, or of another model or layout is never used: it is a log line
and no prefix.  Knows arrays and token ids, not what they mean.  No torch.

Files hold prompts and model state: the directory and the files are for their owner alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import queue
import stat
import tempfile
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.cache.stored import (
    Arrays,
    DamagedError,
    Ids,
    Prefix,
    layout,
    open_regular,
    read_arrays,
    read_prefix,
)

log = logging.getLogger("engine.cache")
START, SUFFIX, UNFINISHED = "spkg-", ".kv", ".part"
WAITING_BYTES = 256 * 2**20  # that wait to be written; one more sequence may wait then, however deep
MOST_FILES = 1024  # looking one up takes microseconds
LEAST_TOKENS = 256  # shorter sequences are computed again as fast
REGROWN = 1.25  # a sequence is stored anew when it is so much longer than what is stored of it


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One file, there or in the making; `written` is None when it could not be written."""

    prefix: Prefix
    nbytes: int
    written: Future[Path | None]

    def saves(self, tenant: str, prompt: Ids) -> int:
        """Tokens of a prompt that need no computing; at least one is left."""
        if self.prefix.tenant != tenant or not _same(self.prefix.tokens, prompt, LEAST_TOKENS):
            return 0
        places = sorted(self.prefix.places, reverse=True)
        fitting = (place for place in places if LEAST_TOKENS <= place < len(prompt))
        return next((place for place in fitting if _same(self.prefix.tokens, prompt, place)), 0)


@dataclass(frozen=True, slots=True)
class Found:
    """A file, and how many tokens of a prompt it saves."""

    entry: Entry
    place: int


@dataclass(frozen=True, slots=True)
class ShelfStats:
    """Files that can be used, their bytes, and the bytes that still wait to be written."""

    files: int = 0
    nbytes: int = 0
    waiting: int = 0


class Shelf:
    """The files of one directory that fit one model, `budget` bytes together; the longest unused go first.

    `fingerprint` names model, layout and roundings.  Files of other models and versions are never used, but
    they count, and go like all others.  Several processes may share a directory.
    """

    def __init__(
        self, directory: Path, *, fingerprint: str, budget: int, worker: Executor | None = None
    ) -> None:
        """Find what is there already; OSError when the directory cannot be used.

        `worker` reads and writes, one file at a time and in order; None makes one thread for it.
        """
        _prepare(directory)
        self._directory = directory
        self._fingerprint = fingerprint
        self._budget = budget
        self._worker = worker or ThreadPoolExecutor(1, thread_name_prefix="shelf")
        self._entries: list[Entry] = []  # oldest first
        self._loading: list[Entry] = []
        self._swept: queue.SimpleQueue[Path] = queue.SimpleQueue()  # what the worker deleted
        self._scan()

    def stats(self) -> ShelfStats:
        """What is there now; any thread may ask."""
        there = [entry.nbytes for entry in tuple(self._entries) if entry.written.done()]
        return ShelfStats(len(there), sum(there), self._waiting())

    def find(self, tenant: str, prompt: Ids) -> Found | None:
        """The file that saves most of a prompt, one that is being written too."""
        self._reap()
        name = _name(tenant)
        found = [Found(entry, entry.saves(name, prompt)) for entry in self._entries]
        best = max(reversed(found), key=lambda entry: entry.place, default=None)  # the newest on ties
        return best if best is not None and best.place else None

    def wants(self, tenant: str, tokens: Ids, *, exactly: bool) -> bool:
        """Whether a sequence is worth a file: long and not stored, nor, if not `exactly`, most of it."""
        self._reap()
        name = _name(tenant)
        known = [len(entry.prefix.tokens) for entry in self._entries if _begins(entry.prefix, name, tokens)]
        longest = max(known, default=0)
        return len(tokens) >= max(LEAST_TOKENS, longest + 1 if exactly else REGROWN * longest)

    def has_room(self, nbytes: int) -> bool:
        """Whether so much may wait to be written; a log line says when it may not."""
        waiting = self._waiting()
        fits = nbytes <= self._budget and waiting < WAITING_BYTES
        if not fits:
            reason = "larger than spill_mib" if nbytes > self._budget else f"{waiting} bytes wait already"
            log.warning("event=prefix_not_stored bytes=%d reason=%s", nbytes, reason)
        return fits

    def put(
        self, tenant: str, tokens: Ids, anchors: tuple[int, ...], arrays: Arrays, *, pin: bool | None = None
    ) -> Future[Path | None]:
        """Write a file, beside everything else; a full disk is a log line, and None."""
        prefix = Prefix(_name(tenant), tokens, anchors, pin)
        nbytes = sum(array.nbytes for array in arrays.values())
        replaced = [entry for entry in self._entries if _replaces(prefix, entry.prefix)]
        written = self._worker.submit(self._write, prefix, arrays, replaced)
        self._entries.append(Entry(prefix, nbytes, written))
        return written

    def load(self, entry: Entry) -> Future[Arrays | None]:
        """Read the arrays of a file, beside everything else; None, and it is gone, if it is unusable."""
        self._loading.append(entry)
        return self._worker.submit(self._read, entry)

    def reject(self, entry: Entry, reason: str) -> None:
        """Delete a file that was read and does not fit."""
        self._worker.submit(self._give_up, entry, reason)

    def settle(self) -> None:
        """Wait for everything that was asked of the worker."""
        self._worker.submit(lambda: None).result()
        self._reap()

    def close(self) -> None:
        """Finish what is being written; nothing can be asked afterwards."""
        self._worker.shutdown()
        self._reap()

    # --- the caller's side ---

    def _waiting(self) -> int:
        return sum(entry.nbytes for entry in tuple(self._entries) if not entry.written.done())

    def _reap(self) -> None:
        """Forget what could not be written, and what the worker deleted."""
        gone: set[Path | None] = {None}
        while not self._swept.empty():
            gone.add(self._swept.get())
        self._entries = [
            entry for entry in self._entries if not (entry.written.done() and entry.written.result() in gone)
        ]

    def _scan(self) -> None:
        for path in self._directory.glob(f"{START}*{UNFINISHED}"):
            _remove_abandoned(path)
        for path in sorted(self._directory.glob(f"*{SUFFIX}"), key=_age):
            try:
                prefix, nbytes = read_prefix(path, self._fingerprint), path.stat().st_size
            except (DamagedError, OSError) as error:
                log.warning("event=stored_prefix_ignored file=%s reason=%s", path.name, _reason(error))
                continue
            written: Future[Path | None] = Future()
            written.set_result(path)
            self._entries.append(Entry(prefix, nbytes, written))
        log.info("event=shelf_opened files=%d", len(self._entries))

    # --- the worker's side: it alone touches files ---

    def _write(self, prefix: Prefix, arrays: Arrays, replaced: list[Entry]) -> Path | None:
        """None whatever goes wrong: the engine's thread asks what came of it, and must not break on that."""
        try:
            return self._store(prefix, arrays, replaced)
        except (OSError, MemoryError) as error:
            log.warning("event=prefix_not_stored tokens=%d reason=%s", len(prefix.tokens), _reason(error))
        except Exception:
            log.exception("event=prefix_not_stored tokens=%d", len(prefix.tokens))
        return None

    def _store(self, prefix: Prefix, arrays: Arrays, replaced: list[Entry]) -> Path:
        parts = layout(self._fingerprint, prefix, arrays)
        path = self._directory / f"{START}{hashlib.sha256(parts[0]).hexdigest()[:40]}{SUFFIX}"
        _complete(path, parts)
        for old in (entry.written.result() for entry in replaced):
            if old is not None and old != path:
                self._remove(old)
        self._sweep(path)
        return path

    def _read(self, entry: Entry) -> Arrays | None:
        path = entry.written.result()  # done: it was asked for before this
        try:
            if path is None:
                return None
            arrays = read_arrays(path, self._fingerprint, entry.prefix)
            _touch(path)
            return arrays
        except (DamagedError, OSError) as error:
            self._give_up(entry, _reason(error))
        except MemoryError as error:
            log.warning(
                "event=prefix_not_recalled tokens=%d reason=%s", len(entry.prefix.tokens), _reason(error)
            )
        except Exception as error:
            log.exception("event=prefix_not_recalled tokens=%d", len(entry.prefix.tokens))
            self._give_up(entry, repr(error))
        finally:
            self._loading.remove(entry)
        return None

    def _give_up(self, entry: Entry, reason: str) -> None:
        path = entry.written.result()
        if path is not None:
            log.warning("event=stored_prefix_unusable file=%s reason=%s", path.name, reason)
            self._remove(path)

    def _sweep(self, newest: Path) -> None:
        """Delete the least recently used files beyond the budget, whatever process or model wrote them."""
        files = sorted(self._directory.glob(f"{START}*{SUFFIX}"), key=_age)
        spared = {newest, *(entry.written.result() for entry in self._loading if entry.written.done())}
        total = sum(_size(path) for path in files)
        for number, path in enumerate(files):
            if total <= self._budget and len(files) - number <= MOST_FILES:
                return
            if path not in spared:
                total -= _size(path)
                self._remove(path)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        self._swept.put(path)


def _prepare(directory: Path) -> None:
    """Make a directory for its owner alone; OSError when we cannot put files there, or others can."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(directory.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others may write into it; `chmod 700` makes it yours alone")
    with tempfile.TemporaryFile(dir=directory):
        pass


def _complete(path: Path, parts: list[bytes | memoryview]) -> None:
    """Write a file under another name and rename it when all of it is on the disk."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=START, suffix=UNFINISHED, delete=False
    ) as file:  # made with mode 0600
        unfinished = Path(file.name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # says to other processes that somebody is at it
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            _touch(unfinished)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _remove_abandoned(path: Path) -> None:
    """Delete an unfinished file, unless the process that writes it lives."""
    with contextlib.suppress(OSError, DamagedError), open_regular(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _touch(path: Path) -> None:
    """Note that a file was used now, as finely as a clock can tell."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def _age(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "no memory"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _replaces(new: Prefix, old: Prefix) -> bool:
    """Everything that the old file could serve, the new one serves nearly as well."""
    return _begins(old, new.tenant, new.tokens) and all(
        any(place - LEAST_TOKENS < other <= place for other in new.places) for place in old.places
    )


def _begins(prefix: Prefix, tenant: str, tokens: Ids) -> bool:
    """A stored sequence is the beginning of another one."""
    return prefix.tenant == tenant and _same(prefix.tokens, tokens, len(prefix.tokens))


def _name(tenant: str) -> str:
    """A tenant as files know it."""
    return hashlib.sha256(tenant.encode()).hexdigest()


def _same(one: Ids, other: Ids, count: int) -> bool:
    """Whether both begin with the same ids; most differ early, and `array_equal` looks at all of them."""
    return (
        min(len(one), len(other)) >= count
        and np.array_equal(one[: min(count, LEAST_TOKENS)], other[: min(count, LEAST_TOKENS)])
        and np.array_equal(one[:count], other[:count])
    )
