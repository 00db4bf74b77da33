"""Where hay comes from."""

from __future__ import annotations

from gates.needle.hay import Novel, Prose, open_hay

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
