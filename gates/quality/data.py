"""The files of the question sets: where they lie, whether they are the right ones, and their rows.

Owns the manifest (`fixtures/MANIFEST.toml`) and its digests.  A missing or changed file is one message with
the command that mends it: without its data a set is unknown, never passed.  Knows no fields and no network.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from gates.errors import CheckError

Form = Literal["plain", "gunzip", "choices"]

MANIFEST: Final = Path(__file__).parents[2] / "fixtures" / "MANIFEST.toml"
KEPT_IN: Final = Path.home() / ".cache" / "sparkgate"  # where fetched files go when SPARKGATE_DATA is not set
MEND: Final = "python -m gates data fetch"


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the manifest."""

    path: str
    sha256: str
    bytes: int
    rows: int
    licence: str
    origin: str
    form: Form = "plain"
    parts: tuple[str, ...] = ()

    def urls(self) -> tuple[str, ...]:
        """Where its parts are fetched from, in their order."""
        return tuple(self.origin.format(part=part) for part in self.parts) or (self.origin,)


def read_manifest(path: Path = MANIFEST) -> dict[str, Source]:
    """The files of the manifest by their path; CheckError where an entry is not what it must be."""
    with path.open("rb") as file:
        entries = tomllib.load(file)["file"]
    sources = {}
    for entry in entries:
        try:
            source = Source(**{**entry, "parts": tuple(entry.get("parts", ()))})
        except TypeError as error:
            raise CheckError(f"{path}: entry {entry.get('path')}: {error}") from error
        if source.form not in get_args(Form):
            raise CheckError(
                f"{path}: {source.path}: form is '{source.form}', allowed are {', '.join(get_args(Form))}"
            )
        sources[source.path] = source
    return sources


@dataclass(frozen=True, slots=True)
class Store:
    """The data folder: files are found by the path that the manifest gives them."""

    folder: Path
    sources: Mapping[str, Source]

    @classmethod
    def open(cls, data: Path | None) -> Store:
        """The store in `data` (the folder of SPARKGATE_DATA), else in the user's cache."""
        return cls(data or KEPT_IN, read_manifest())

    def content(self, path: str) -> bytes:
        """The bytes of a file whose digest is right; CheckError says what is wrong and how to mend it."""
        source, place = self.sources[path], self.folder / path
        try:
            size = place.stat().st_size
            if not place.is_file():  # a pipe would be waited for, a device never ends
                raise OSError(errno.EINVAL, "it is no file")
            content = place.read_bytes() if size == source.bytes else None
        except OSError as error:
            raise CheckError(
                f"the data file {place} cannot be read ({error.strerror}); run `{MEND}`, or set"
                f" SPARKGATE_DATA to a folder that holds {path} (sha256 {source.sha256})"
            ) from error
        if content is None:
            raise CheckError(
                f"the data file {place} has {size} bytes, wanted are {source.bytes}; move it away and run"
                f" `{MEND}`"
            )
        found = hashlib.sha256(content).hexdigest()
        if found != source.sha256:
            raise CheckError(
                f"the data file {place} has sha256 {found}, wanted is {source.sha256}; move it away and run"
                f" `{MEND}`"
            )
        return content

    def rows(self, path: str) -> Iterator[Mapping[str, Any]]:
        """The rows of a JSON or JSON-lines file, packed or not; CheckError when some are missing."""
        content = self.content(path)
        text = (gzip.decompress(content) if path.endswith(".gz") else content).decode("utf-8")
        rows = json.loads(text) if path.endswith(".json") else [json.loads(x) for x in text.split("\n") if x]
        if len(rows) != self.sources[path].rows:
            raise CheckError(f"{path} has {len(rows)} rows, the manifest says {self.sources[path].rows}")
        return iter(rows)

    def digests(self, paths: tuple[str, ...]) -> dict[str, str]:
        """The digests of these files, for the record of a run."""
        return {path: self.sources[path].sha256 for path in paths}
