"""How long a text must be for a prompt to have the tokens of its tier, learned from the server's own counts.

Text is measured in pieces (words, digit groups, marks): tokens follow them closely and characters loosely.
Owns the ruler and the cutting; sends nothing: `drive` asks and lets the ruler know what `usage` said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gates.needle.text import sentence_ends

_PIECE: Final = re.compile(r"[^\W\d_]{1,12}|\d{1,3}|[^\w\s]|_")
LEAST_TOKENS, MOST_TOKENS = 0.7, 6.0  # for each piece: whole words as tokens, or nearly letter by letter


def pieces(text: str) -> int:
    """Words (long ones in parts of twelve letters), groups of three digits and marks in a text."""
    return sum(1 for _ in _PIECE.finditer(text))


@dataclass(frozen=True, slots=True)
class Ruler:
    """Tokens of a prompt = `overhead_tokens` + `tokens_per_piece` x pieces of its messages."""

    overhead_tokens: float
    tokens_per_piece: float

    @classmethod
    def from_probes(cls, small: tuple[int, int], large: tuple[int, int]) -> Ruler:
        """The line through two probes, each (pieces, prompt tokens); the overhead is kept at 0 or more."""
        (few, few_tokens), (many, many_tokens) = small, large
        slope = _plausible((many_tokens - few_tokens) / (many - few))
        return cls(max(0.0, few_tokens - slope * few), slope)

    def tokens(self, counted_pieces: int) -> float:
        """Expected prompt tokens of a text with so many pieces."""
        return self.overhead_tokens + self.tokens_per_piece * counted_pieces

    def pieces(self, tokens: float) -> int:
        """Pieces that a prompt of so many tokens may have."""
        return max(0, round((tokens - self.overhead_tokens) / self.tokens_per_piece))

    def corrected(self, counted_pieces: int, prompt_tokens: int) -> Ruler:
        """The ruler that would have been right for this prompt, or for these prompts together."""
        slope = (prompt_tokens - self.overhead_tokens) / max(1, counted_pieces)
        return Ruler(self.overhead_tokens, _plausible(slope))


@dataclass(slots=True)
class Scale:
    """The ruler of a run: right for all prompts of a tier so far together; single texts vary around it."""

    ruler: Ruler
    tier_tokens: int = 0
    counted_pieces: int = 0
    counted_tokens: float = 0.0  # without the overhead

    def learn(self, tier_tokens: int, counted_pieces: int, prompt_tokens: int) -> None:
        """Take in what the server counted for a prompt; a new tier starts with the ruler of the last."""
        if tier_tokens != self.tier_tokens:
            self.tier_tokens, self.counted_pieces, self.counted_tokens = tier_tokens, 0, 0.0
        self.counted_pieces += counted_pieces
        self.counted_tokens += max(0.0, prompt_tokens - self.ruler.overhead_tokens)
        together = round(self.counted_tokens + self.ruler.overhead_tokens)
        self.ruler = self.ruler.corrected(self.counted_pieces, together)


def _plausible(tokens_per_piece: float) -> float:
    """Kept within what any vocabulary gives, so that wrong counts cannot make texts without end."""
    return min(max(tokens_per_piece, LEAST_TOKENS), MOST_TOKENS)


def cut(hay: Iterator[str], wanted_pieces: int) -> str:
    """Whole sentences up to the wanted pieces; the last one is shortened at a word and gets a full stop."""
    taken: list[str] = []
    left = wanted_pieces
    for sentence in hay:
        size = pieces(sentence)
        if size > left:
            taken.append(_shortened(sentence, left))
            break
        taken.append(sentence)
        left -= size
    return "".join(taken).rstrip()


def _shortened(sentence: str, wanted_pieces: int) -> str:
    """The start of a sentence with at most so many pieces, its full stop counted; empty when none is left."""
    if wanted_pieces < 3:  # two words and a full stop are the least that reads as a sentence
        return ""
    ends = [piece.end() for piece in _PIECE.finditer(sentence)]
    return sentence[: ends[wanted_pieces - 2]].rstrip(" \n,;:-\"'(\u201c\u2018") + "."


def turned(hay: str) -> str:
    """The same sentences with the second half first: as many tokens, but no prefix in common."""
    ends = sentence_ends(hay)
    border = min(ends, key=lambda end: abs(end - len(hay) // 2), default=len(hay))
    return f"{hay[border:].strip()} {hay[:border]}".strip()
