"""The novel: found, fetched or refused, and always the same text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gates.errors import UsageError
from gates.needle import novel
from gates.needle.novel import FILE, FRONT, read_novel, restored

RAW = b"\r\n\r\nCHAPTER I\r\n\r\nWell, Prince.\r\n\r\n\r\n\r\n\r\nCHAPTER II\r\n\r\nIt was July.\r\nYes."
BOOK = FRONT + "CHAPTER I\n\nWell, Prince.\n\n\nCHAPTER II\n\nIt was July.\nYes.\n"


@pytest.fixture(autouse=True)
def _the_book_is_the_novel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short book stands for the long one."""
    monkeypatch.setattr(novel, "SHA256", hashlib.sha256(BOOK.encode()).hexdigest())


def write(folder: Path, content: str) -> Path:
    """A text in the novel's place of a folder."""
    path = folder / FILE
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    return folder


def offline(url: str) -> bytes:
    """A host without a network."""
    raise OSError(f"no way to {url}")


def test_the_data_folder_comes_first_and_needs_no_network(tmp_path: Path) -> None:
    assert BOOK == read_novel(write(tmp_path, BOOK), kept_in=tmp_path / "none", fetch=offline)


def test_a_fetched_copy_becomes_the_text_and_is_kept(tmp_path: Path) -> None:
    assert BOOK == read_novel(None, kept_in=tmp_path, fetch=lambda _: RAW)
    assert BOOK == read_novel(None, kept_in=tmp_path, fetch=offline)
    assert [FILE.rpartition("/")[2]] == [path.name for path in (tmp_path / FILE).parent.iterdir()]


def test_a_fetched_copy_has_unix_lines_a_title_and_two_empty_lines_at_most() -> None:
    assert BOOK.encode() == restored(RAW)


def test_without_folder_and_network_the_message_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set SPARKGATE_DATA to a folder that holds haystack/"):
        read_novel(None, kept_in=tmp_path, fetch=offline)


def test_a_folder_without_the_novel_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_novel(tmp_path, kept_in=tmp_path, fetch=offline)


@pytest.mark.parametrize("where", ["data", "cache", "network"])
def test_another_text_is_refused_wherever_it_comes_from(where: str, tmp_path: Path) -> None:
    if where != "network":
        write(tmp_path, "Call me Ishmael.")
    with pytest.raises(UsageError, match="wanted is"):
        read_novel(
            tmp_path if where == "data" else None, kept_in=tmp_path, fetch=lambda _: b"Call me Ishmael.\r\n"
        )
