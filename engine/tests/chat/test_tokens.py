"""Tokens on their way to the parser of an answer."""

from __future__ import annotations

from engine.chat.markers import END_THINK, THINK, Markers
from engine.chat.output import OutputParser
from engine.chat.pieces import Piece
from engine.chat.tokens import TokenReader
from engine.tests.server.live import byte_tokenizer


def test_a_marker_ends_the_reasoning_and_is_not_shown() -> None:
    tokenizer = byte_tokenizer()
    reader = TokenReader(OutputParser(thinking=True), Markers.of(tokenizer), tokenizer.stream())
    ids = [*tokenizer.encode("so é"), tokenizer.special(END_THINK), *tokenizer.encode("yes")]

    pieces = [piece for token in ids for piece in reader.push(token) if isinstance(piece, Piece)]

    assert "so é" == "".join(piece.text for piece in pieces if piece.kind == "reasoning")
    assert "yes" == "".join(piece.text for piece in pieces if piece.kind == "content")


def test_the_characters_of_a_marker_are_text() -> None:
    tokenizer = byte_tokenizer()
    parser = OutputParser(thinking=False)
    reader = TokenReader(parser, Markers.of(tokenizer), tokenizer.stream())

    for token in tokenizer.encode(THINK + "a"):
        reader.push(token)

    assert THINK + "a" == parser.content
