"""Asks the cells of a needle plan: two or three turns a cell, each text cut to the tokens of its tier.

The lengths come from the server's own `usage`: two probes first, then every reply corrects the ruler.
A text that missed its tier is asked once more with its halves exchanged, so as long and cold again.
In the end first turns are asked again for their time alone, in passes over all cells: a host that was slow
for a while is not slow in every one.
Writes what `check` needs into the history, grades nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.errors import UsageError
from gates.harness.reply import Reply
from gates.harness.rig import Rig
from gates.needle import text
from gates.needle.hay import Hay, open_hay
from gates.needle.plan import Cell, NeedlePlan, Turn
from gates.needle.prose import prose
from gates.needle.sizing import Ruler, Scale, cut, pieces, turned
from gates.needle.timing import COLD

REPLY_TOKENS: Final = 256  # three sentences need about sixty
ATTEMPTS: Final = 3
PROBE_CHARACTERS: Final = (400, 6000)
ANSWERS_TOKENS: Final = 2048  # what the replies and second tries of a cell cost, in tokens that are read
CONTINUE: Final = "Continue this text: "
# Thinking off in the spellings that servers of this model know, and token ids; others skip unknown members.
EXTRA: Final[Mapping[str, Any]] = {
    "think": False,
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    "return_token_ids": True,
}


def drive(plan: NeedlePlan, rig: Rig) -> None:
    """Ask every cell; UsageError when a tier does not fit the server's context or the hay is missing."""
    _fit(plan, rig.context_tokens)
    asker = _Asker(plan, rig, open_hay(plan.hay, rig.data))
    planned = {cell.id: [turn.what for turn in cell.turns] for cell in plan.asked_cells}
    rig.history.note("planned_cells", cells=planned, hay=plan.hay)
    again = plan.asked_again
    rig.progress.cells(
        plan.cells + len(again),
        weights=[
            *(cell.tier_tokens + ANSWERS_TOKENS for cell in plan.asked_cells),
            *(cell.tier_tokens for cell in again),
        ],
    )
    asker.calibrate()
    for cell in plan.asked_cells:
        rig.progress.cell(f"{cell.ask} at {cell.tier_tokens:,} tokens, depth {cell.depth:.0%}")
        asker.ask(cell)
    for number, cell in enumerate(again, start=1):
        rig.progress.cell(f"first token again at {cell.tier_tokens:,} tokens, depth {cell.depth:.0%}")
        asker.time(cell, attempt=ATTEMPTS + number)


def _fit(plan: NeedlePlan, context_tokens: int) -> None:
    longest = max(cell.tier_tokens for cell in plan.asked_cells)
    needed = longest + longest // 100 + 3 * REPLY_TOKENS
    if needed > context_tokens:
        raise UsageError(
            f"a needle cell of {longest} tokens with two replies needs a context of {needed} tokens and the"
            f" server has {context_tokens}; start it with more, or leave that tier out of the profile"
        )


class _Asker:
    """The state of one drive: what the ruler has learned."""

    def __init__(self, plan: NeedlePlan, rig: Rig, hay: Hay) -> None:
        self._plan = plan
        self._rig = rig
        self._hay = hay
        self._scale = Scale(Ruler(10.0, 1.1))  # a start for servers that report no usage

    def calibrate(self) -> None:
        """Learn tokens per piece from a short and a longer text that no cell uses."""
        points: list[tuple[int, int]] = []
        for characters in PROBE_CHARACTERS:
            message = prose(f"{self._plan.asked_cells[0].id}/probe/{characters}", characters)
            reply = self._chat("probe", [_user(message)], {"pieces": pieces(message)}, max_tokens=1)
            if reply and reply.usage.prompt_tokens:
                points.append((pieces(message), reply.usage.prompt_tokens))
        if len(points) == len(PROBE_CHARACTERS):
            self._scale = Scale(Ruler.from_probes(points[0], points[1]))
        self._converse()

    def _converse(self) -> None:
        """A long reply and a turn after it, whose prompt must grow by its tokens (see `usage`)."""
        message = CONTINUE + prose(f"{self._plan.asked_cells[0].id}/continue", 700).rpartition(" ")[0]
        fields = {"cell": "continuation", "turn": 1, "pieces": pieces(message)}
        reply = self._chat("continue", [_user(message)], fields, max_tokens=REPLY_TOKENS)
        if reply is None:
            return
        asked = text.follow_up(text.KEYS[0])
        fields |= {
            "turn": 2,
            "pieces": pieces(message + reply.text + asked),
            "question_pieces": pieces(asked),
        }
        messages = [_user(message), {"role": "assistant", "content": reply.text}, _user(asked)]
        self._chat("continue_followup", messages, fields, max_tokens=REPLY_TOKENS)

    def ask(self, cell: Cell) -> None:
        """All turns of a cell; the first again while its length is off and attempts are left."""
        ruler = self._scale.ruler
        for attempt in range(1, ATTEMPTS + 1):
            talk = self._talk(cell, ruler, attempt)
            reply = self._ask(talk)
            if reply is None:
                return
            prompt_tokens = reply.usage.prompt_tokens or cell.tier_tokens
            ruler = ruler.corrected(talk.pieces, prompt_tokens)
            self._scale.learn(cell.tier_tokens, talk.pieces, prompt_tokens)
            missed = abs(prompt_tokens - cell.tier_tokens)
            if missed <= self._plan.length_tolerance * cell.tier_tokens or attempt == ATTEMPTS:
                self._go_on(talk, reply)
                return

    def time(self, cell: Cell, *, attempt: int) -> None:
        """The first turn up to its first token, in hay of its own; attempts beyond `ATTEMPTS` are these."""
        talk = self._talk(cell, self._scale.ruler, attempt)
        self._chat(COLD, talk.messages, talk.fields(), max_tokens=1)

    def _go_on(self, talk: _Talk, reply: Reply | None) -> None:
        """The later turns of a conversation, until one gets no reply."""
        for turn in talk.cell.turns[1:]:
            if reply is None:
                return
            talk.messages.extend(({"role": "assistant", "content": reply.text}, _user(turn.question)))
            reply = self._ask(talk)

    def _ask(self, talk: _Talk) -> Reply | None:
        return self._chat(talk.turn.what, talk.messages, talk.fields(), max_tokens=REPLY_TOKENS)

    def _talk(self, cell: Cell, ruler: Ruler, attempt: int) -> _Talk:
        """The first turn of this attempt: a message of the tier's prompt tokens by this ruler."""
        seed = f"{cell.hay_seed}/{attempt}" if attempt > ATTEMPTS else cell.hay_seed
        hay = cut(self._hay.sentences(seed), ruler.pieces(cell.tier_tokens) - pieces(cell.message("")))
        return _Talk(cell, attempt, [_user(cell.message(turned(hay) if 1 < attempt <= ATTEMPTS else hay))])

    def _chat(
        self, what: str, messages: list[dict[str, str]], fields: Mapping[str, Any], *, max_tokens: int
    ) -> Reply | None:
        fields = {**fields, "max_tokens": max_tokens}
        return self._rig.chat(what, messages, fields=fields, max_tokens=max_tokens, extra=EXTRA)


@dataclass(frozen=True, slots=True)
class _Talk:
    """One conversation as far as it has come."""

    cell: Cell
    attempt: int
    messages: list[dict[str, str]]

    @property
    def turn(self) -> Turn:
        """The turn whose question was put last."""
        return self.cell.turns[len(self.messages) // 2]

    @property
    def pieces(self) -> int:
        """Words and marks of all messages."""
        return sum(pieces(message["content"]) for message in self.messages)

    def fields(self) -> dict[str, Any]:
        """What the history keeps of the question."""
        cell, turn = self.cell, self.turn
        return {
            "cell": cell.id,
            "tier_tokens": cell.tier_tokens,
            "depth": cell.depth,
            "attempt": self.attempt,
            "turn": len(self.messages) // 2 + 1,
            "asked_keys": turn.keys,
            "expected": turn.expected,
            "others": turn.others,
            "pieces": self.pieces,
            "question_pieces": pieces(turn.question),
            "sha256": hashlib.sha256(self.messages[0]["content"].encode("utf-8")).hexdigest(),
        }


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
