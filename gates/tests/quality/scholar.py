"""An honest small server that knows the sets of our own by heart, for tests of the quality gate.

It answers one question in `WRONG_EVERY` wrongly; what it was never told it answers from the words of the
question, so that another question gets another reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from gates.quality.mini import sets as mini
from gates.quality.mini.item import Item
from gates.tests.reader import Body, Reader

WRONG_EVERY: Final = 6


class Scholar(Reader):
    """Knows the items of these sets, drawn with the seed of a plan."""

    def __init__(
        self, names: Sequence[str], count: int, *, seed: int, seconds_per_reply_token: float = 0.0005
    ) -> None:
        super().__init__(seconds_per_reply_token=seconds_per_reply_token)
        self._known: dict[str, Item] = {}
        for name in names:
            drawn = mini.DRAWN[name](f"{name}/{seed}", count)
            for place, item in enumerate(drawn):
                told = drawn[place - 1] if place % WRONG_EVERY == WRONG_EVERY - 1 else item
                self._known[item.prompt] = told

    def thought(self, body: Body) -> str:
        """The thoughts of an item, where the request wants them."""
        item = self._known.get(body["messages"][-1]["content"])
        if body.get("thinking", {}).get("type") != "enabled":
            return ""
        return item.thought if item else "I have to guess."

    def reply(self, body: Body) -> str:
        """The reply of an item, else one that no other question gets."""
        asked = str(body["messages"][-1]["content"])
        item = self._known.get(asked)
        if item is None:
            return f"{hashlib.sha256(asked.encode()).hexdigest()[:8]} is my guess.\n#### {len(asked)}"
        return item.thoughtful if self.thought(body) else item.reply
