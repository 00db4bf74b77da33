"""Where hay comes from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gates.errors import UsageError
from gates.needle import hay
from gates.needle.hay import Novel, Prose, open_hay, read_novel

BOOK = (
    'ONE\n\n"Well, Prince," said she. He\nbowed, and went.\n\nTWO\n\nIt was July. Mr. Low came! Who? Nobody.'
)


def test_a_novel_gives_every_sentence_once_from_a_seeded_place_on() -> None:
    novel = Novel(BOOK)
    first, second = "".join(novel.sentences("a")).split(), "".join(novel.sentences("seed 2")).split()

    assert sorted(BOOK.split()) == sorted(first) == sorted(second)


def test_lines_of_a_novel_are_joined_and_paragraphs_kept() -> None:
    sentences = set(Novel(BOOK).sentences("any"))

    assert "He bowed, and went.\n\n" in sentences
    assert "Mr. Low came! " in sentences


def test_different_seeds_start_at_different_places() -> None:
    novel = Novel(" ".join(f"Sentence {n} ends here." for n in range(500)))
    starts = {next(novel.sentences(f"needle/release/2000/{n}")) for n in range(60)}

    assert len(starts) > 50


def test_prose_needs_no_data() -> None:
    assert isinstance(open_hay("prose", None), Prose)


def test_a_profile_with_a_novel_says_what_to_set() -> None:
    with pytest.raises(UsageError, match="set SPARKGATE_DATA to the folder that holds haystack/"):
        open_hay("novel", None)


def test_a_folder_without_the_novel_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_novel(tmp_path)


def test_another_text_under_the_name_of_the_novel_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "Call me Ishmael.")

    with pytest.raises(UsageError, match="has sha256"):
        read_novel(tmp_path)


def test_the_right_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, BOOK)
    monkeypatch.setattr(hay, "NOVEL_SHA256", hashlib.sha256(BOOK.encode()).hexdigest())

    assert isinstance(open_hay("novel", tmp_path), Novel)


def write(folder: Path, content: str) -> None:
    """A text in the novel's place of a data folder."""
    path = folder / hay.NOVEL
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8")
