"""The novel that hides the needles of large models: from the data folder, else fetched once and kept.

Owns where the text is, how a fetched copy becomes that text, and that it is the right one (by its digest).
Knows nothing of sentences and needles.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gates.errors import UsageError

# War and Peace, translated by Louise and Aylmer Maude: in the public domain.
FILE: Final = "haystack/war_and_peace_maude.txt"
SHA256: Final = "237b95785cda5bf4ff87b19b680c6b6e7497afe56d72b568968d80ee9a233a79"
SOURCE: Final = (
    "https://raw.githubusercontent.com/christinakouridi/MCMC/9516115d13aa8b30a3bb972507a70ee48dd9b2e1"
    "/war_and_peace.txt"
)
FRONT: Final = (
    "WAR AND PEACE\n\nBy Leo Tolstoy\n\nTranslated by Louise and Aylmer Maude\n\n\nBOOK ONE: 1805\n\n\n"
)
KEPT_IN: Final = Path.home() / ".cache" / "sparkgate"
FETCH_S: Final = 60.0

Fetch = Callable[[str], bytes]


def read_novel(data: Path | None, *, kept_in: Path = KEPT_IN, fetch: Fetch | None = None) -> str:
    """The text of the novel: from `data` (the folder of SPARKGATE_DATA), else from the cache, else fetched.

    UsageError when it cannot be had, or is another text.
    """
    if data is not None:
        return _checked(_read(data / FILE), f"{data / FILE}")
    kept = kept_in / FILE
    if kept.is_file():
        return _checked(kept.read_bytes(), f"{kept}")
    try:
        raw = (fetch or _fetch)(SOURCE)
    except OSError as error:
        raise UsageError(
            f"this profile hides its needles in a novel, and it could not be fetched from {SOURCE} ({error});"
            f" set SPARKGATE_DATA to a folder that holds {FILE} (sha256 {SHA256})"
        ) from error
    novel = _checked(restored(raw), SOURCE)
    _keep(kept, novel)
    return novel


def restored(raw: bytes) -> bytes:
    """The text of a fetched copy: unix line ends, at most two empty lines in a row, title in front."""
    lines = raw.replace(b"\r\n", b"\n").strip(b"\n")
    return FRONT.encode() + re.sub(rb"\n{4,}", b"\n\n\n", lines) + b"\n"


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; SPARKGATE_DATA must name the folder that holds {FILE}")
    return path.read_bytes()


def _checked(content: bytes, where: str) -> str:
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise UsageError(
            f"the novel from {where} has sha256 {found}, wanted is {SHA256}; set SPARKGATE_DATA to a folder"
            f" that holds the right {FILE}"
        )
    return content.decode("utf-8")


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=FETCH_S) as answer:
        content: bytes = answer.read()
    return content


def _keep(path: Path, novel: str) -> None:
    """Write through a temporary file, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        part.write(novel.encode("utf-8"))
    Path(part.name).replace(path)
