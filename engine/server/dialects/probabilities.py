"""Writes the probabilities of tokens as the OpenAI chat dialect does.

Covers every token of an answer, reasoning and tags too, in the order of `token_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.server.generation import Probability


def logprobs(tokens: Sequence[Probability]) -> dict[str, Any] | None:
    """The `logprobs` member of a choice; None when there is nothing to report."""
    if not tokens:
        return None
    content = [
        {
            **_entry(token.text, token.logprob),
            "top_logprobs": [_entry(text, value) for text, value in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _entry(text: bytes, logprob: float) -> dict[str, Any]:
    """A token may be a part of a character: only its bytes are exact."""
    return {"token": text.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(text)}
