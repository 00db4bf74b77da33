"""Asks the cells of a needle plan: two turns a cell, each text cut to the tokens of its tier.

The lengths come from the server's own `usage`: two probes first, then every reply corrects the ruler.
A text that missed its tier is asked once more with its halves exchanged, so that it is cold again.
Writes what `check` needs into the history, grades nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from gates.errors import UsageError
from gates.harness.reply import Reply
from gates.harness.rig import Rig
from gates.needle import text
from gates.needle.hay import Hay, open_hay
from gates.needle.plan import Cell, NeedlePlan
from gates.needle.prose import prose
from gates.needle.sizing import Ruler, Scale, cut, pieces, turned

REPLY_TOKENS: Final = 256  # three sentences need about sixty
ATTEMPTS: Final = 3
PROBE_CHARACTERS: Final = (400, 6000)
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
    rig.history.note("planned_cells", cells={cell.id: cell.ask for cell in plan.asked_cells}, hay=plan.hay)
    rig.progress.cells(plan.cells, weights=[cell.tier_tokens for cell in plan.asked_cells])
    asker.calibrate()
    for cell in plan.asked_cells:
        rig.progress.cell(f"{cell.ask} at {cell.tier_tokens:,} tokens, depth {cell.depth:.0%}")
        asker.ask(cell)


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
        fields = {"cell": "continuation", "pieces": pieces(message)}
        reply = self._chat("continue", [_user(message)], fields, max_tokens=REPLY_TOKENS)
        if reply is None:
            return
        asked = text.follow_up(text.KEYS[0])
        fields |= {"pieces": pieces(message + reply.text + asked), "question_pieces": pieces(asked)}
        messages = [_user(message), {"role": "assistant", "content": reply.text}, _user(asked)]
        self._chat("continue_followup", messages, fields, max_tokens=REPLY_TOKENS)

    def ask(self, cell: Cell) -> None:
        """Both turns of a cell; the first again while its length is off and attempts are left."""
        ruler = self._scale.ruler
        for attempt in range(1, ATTEMPTS + 1):
            message = self._message(cell, ruler, again=attempt > 1)
            reply = self._first_turn(cell, message, attempt)
            if reply is None:
                return
            prompt_tokens = reply.usage.prompt_tokens or cell.tier_tokens
            ruler = ruler.corrected(pieces(message), prompt_tokens)
            self._scale.learn(cell.tier_tokens, pieces(message), prompt_tokens)
            missed = abs(prompt_tokens - cell.tier_tokens)
            if missed <= self._plan.length_tolerance * cell.tier_tokens or attempt == ATTEMPTS:
                self._second_turn(cell, message, reply, attempt)
                return

    def _message(self, cell: Cell, ruler: Ruler, *, again: bool) -> str:
        """The user message that has the tier's prompt tokens by this ruler."""
        frame = pieces(cell.message(""))
        hay = cut(self._hay.sentences(cell.hay_seed), ruler.pieces(cell.tier_tokens) - frame)
        return cell.message(turned(hay) if again else hay)

    def _first_turn(self, cell: Cell, message: str, attempt: int) -> Reply | None:
        fields = {
            **_cell_fields(cell, attempt),
            "expected": [needle.code for needle in cell.asked],
            "asked_keys": [needle.key for needle in cell.asked] or [cell.absent_key],
            "others": [needle.code for needle in cell.decoys],
            "pieces": pieces(message),
            "sha256": hashlib.sha256(message.encode("utf-8")).hexdigest(),
        }
        return self._chat(cell.ask, [_user(message)], fields, max_tokens=REPLY_TOKENS)

    def _second_turn(self, cell: Cell, message: str, reply: Reply, attempt: int) -> None:
        said = {"role": "assistant", "content": reply.text}
        fields = {
            **_cell_fields(cell, attempt),
            "expected": [cell.decoys[0].code],
            "asked_keys": [cell.decoys[0].key],
            "others": [needle.code for needle in cell.decoys[1:]],
            "pieces": pieces(message) + pieces(reply.text) + pieces(cell.follow_up),
            "question_pieces": pieces(cell.follow_up),
        }
        messages = [_user(message), said, _user(cell.follow_up)]
        self._chat("followup", messages, fields, max_tokens=REPLY_TOKENS)

    def _chat(
        self, what: str, messages: list[dict[str, str]], fields: Mapping[str, Any], *, max_tokens: int
    ) -> Reply | None:
        fields = {**fields, "max_tokens": max_tokens}
        return self._rig.chat(what, messages, fields=fields, max_tokens=max_tokens, extra=EXTRA)


def _cell_fields(cell: Cell, attempt: int) -> dict[str, Any]:
    return {
        "cell": cell.id,
        "tier_tokens": cell.tier_tokens,
        "ask": cell.ask,
        "depth": cell.depth,
        "attempt": attempt,
    }


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
