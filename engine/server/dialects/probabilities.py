"""Writes the probabilities of tokens: entries for the chat and Responses dialects, lists for completions.

A token may be a part of a character.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.server.generation import Probability


def logprobs(tokens: Sequence[Probability]) -> list[dict[str, Any]]:
    """One entry a token; only its bytes are exact."""
    return [
        {
            **_entry(token.text, token.logprob),
            "top_logprobs": [_entry(text, value) for text, value in token.top],
        }
        for token in tokens
    ]


def _entry(text: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(text)}


@dataclass(slots=True)
class LogprobLists:
    """The `logprobs` of completions, part by part of one text: four lists with an entry a token."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=codecs.getincrementaldecoder("utf-8")  # offsets count characters
    )
    _offset: int = 0

    def __post_init__(self) -> None:
        self._decoder.errors = "replace"

    def part(self, tokens: Sequence[Probability]) -> dict[str, Any] | None:
        """The lists for the next tokens; None when there is nothing to report."""
        if not tokens:
            return None
        return {
            "tokens": [_name(token.text) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [_likely(token) for token in tokens],
            "text_offset": [self._place(token.text) for token in tokens],
        }

    def _place(self, text: bytes) -> int:
        """Where a token begins; one inside a character, where that does."""
        place = self._offset
        self._offset += len(self._decoder.decode(text))
        return place


def _likely(token: Probability) -> dict[str, float]:
    """The likeliest tokens and the chosen one, which may be one more."""
    chosen = [] if token.text in dict(token.top) else [(token.text, token.logprob)]
    return {_name(text): value for text, value in (*token.top, *chosen)}


def _name(text: bytes) -> str:
    """A token as text; one that is no text by its bytes, as the OpenAI API spells them."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text)
