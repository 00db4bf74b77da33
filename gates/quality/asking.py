"""How an item is asked: one user message, greedy, seeded, the thinking state said, no stop strings.

Owns the members of a request that are the same for every set; knows no set and opens no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Arm = Literal["fast", "thinking"]

SEED: Final = 1234
TEMPERATURE: Final = 0.0


@dataclass(frozen=True, slots=True)
class Question:
    """One item as it is sent: its id, the user message, and how long the reply may be."""

    id: str
    prompt: str
    max_tokens: int


def request(question: Question, *, arm: Arm) -> Mapping[str, Any]:
    """The members of the request body.

    The thinking state is said in each spelling that servers read, for some skip unknown ones in silence;
    stop strings made for base models would cut a chat reply, so there are none.
    """
    thinks = arm == "thinking"
    return {
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.max_tokens,
        "temperature": TEMPERATURE,
        "seed": SEED,
        "thinking": {"type": "enabled" if thinks else "disabled"},
        "return_token_ids": True,
        "chat_template_kwargs": {"thinking": thinks, "enable_thinking": thinks},
    }
