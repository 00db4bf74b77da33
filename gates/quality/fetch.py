"""Fetches the files of the question sets: resumes, checks the digest, and never leaves half a file in place.

Owns HTTP transfers and the forms in which files are fetched; knows no set.

    <path>.part, <path>.part3   what has come so far of a file, of its fourth part; kept for the next try
    <path>                      the whole file, put in place only when its digest is right
"""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import io
import json
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final

from gates.errors import InfrastructureError
from gates.quality.data import Source, Store

TIMEOUT_S: Final = 60.0
TRIES: Final = 4  # of one transfer, each goes on where the one before was cut
CHUNK_BYTES: Final = 1 << 16
LETTERS: Final = "ABCD"

Told = Callable[[str, str], None]  # path, what became of it


def fetch(store: Store, *, told: Told) -> None:
    """Fetch every file of the store that is missing or wrong; InfrastructureError when one cannot be had."""
    for source in store.sources.values():
        place = store.folder / source.path
        try:
            if place.is_file() and _digest(place.read_bytes()) == source.sha256:
                told(source.path, "there")
                continue
            if os.path.lexists(place) and not place.is_file():
                raise FileExistsError(errno.EEXIST, "something that is no file is in its place")
            fetch_file(source, place)
        except OSError as error:
            raise InfrastructureError(
                f"{place} cannot be put there ({error.strerror}): move away what is in the way, or set"
                " SPARKGATE_DATA to a folder that is yours to write"
            ) from error
        told(source.path, "fetched")


def fetch_file(source: Source, place: Path) -> None:
    """Fetch one file and put it in its place; InfrastructureError when it cannot be had or is another."""
    place.parent.mkdir(parents=True, exist_ok=True)
    halves = [place.with_name(f"{place.name}.part{n or ''}") for n in range(len(source.urls()))]
    for url, half in zip(source.urls(), halves, strict=True):
        _transfer(url, half)
    try:
        content = _formed(source, [half.read_bytes() for half in halves])
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError):
        content = b""  # not even of its form; its digest is wrong then
    for half in halves:  # also when the digest is wrong: what is kept would be wrong again
        half.unlink()
    if _digest(content) != source.sha256:
        raise InfrastructureError(
            f"{source.origin} gave a file with sha256 {_digest(content)}, wanted is {source.sha256};"
            f" nothing was kept. Put the right {source.path} into {place.parent} by hand"
        )
    _put(place, content)


def _transfer(url: str, half: Path) -> None:
    """Bring the whole of one URL into a file, going on where an earlier try was cut."""
    for attempt in range(1, TRIES + 1):
        try:
            _go_on(url, half)
            return
        except (OSError, HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if final or attempt == TRIES:
                kept = half.stat().st_size if half.exists() else 0
                raise InfrastructureError(
                    f"{url} could not be fetched ({error}); {kept} bytes are kept,"
                    " the same command goes on there"
                ) from error


def _go_on(url: str, half: Path) -> None:
    have = half.stat().st_size if half.exists() else 0
    wanted = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(wanted, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:  # nothing is left to send: it was cut after its last byte
            return
        raise
    with answer, half.open("ab" if answer.status == 206 else "wb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        missing = answer.length  # what the server announced and did not send
    if missing:
        raise ConnectionError(f"cut {missing} bytes before the end")


def _formed(source: Source, parts: Sequence[bytes]) -> bytes:
    """What the fetched parts become."""
    if source.form == "gunzip":
        return gzip.decompress(b"".join(parts))
    if source.form == "choices":
        lines = (
            line
            for name, part in zip(source.parts, parts, strict=True)
            for line in _choices(name, part.decode("utf-8"))
        )
        return "".join(lines).encode("utf-8")
    return b"".join(parts)


def _choices(subject: str, table: str) -> Iterator[str]:
    """One JSON line a row of a table with a question, four choices and the number of the right one."""
    for index, row in enumerate(csv.DictReader(io.StringIO(table, newline=""))):
        problem = {
            "subject": subject,
            "index": index,
            "question": row["question"],
            "choices": [row[f"choice{n}"] for n in range(4)],
            "answer": LETTERS[int(row["answer"])],
        }
        yield json.dumps(problem, ensure_ascii=False) + "\n"


def _put(place: Path, content: bytes) -> None:
    """Write through a temporary name, so that a reader never sees half a file."""
    new = place.with_name(f"{place.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(place)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
