"""A deep conversation: one long text with many codes, asked for one after the other.

Owns its wording, its length and how patiently it is asked; who asks what and when is for other gates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gates.errors import UsageError
from gates.harness import ceiling
from gates.harness.client import Message
from gates.harness.reply import NOTHING, Reply
from gates.harness.rig import Rig
from gates.needle import text
from gates.needle.hay import Hay
from gates.needle.prose import random_for
from gates.needle.sizing import Ruler, cut, pieces

TRIES: Final = 6  # of a question that the server refuses because it is full
PROBE: Final = "probe"  # the kind of request that only asks how many tokens a text has
PROBE_TOKENS: Final = 4  # of its answer
PROBE_PIECES: Final = (200, 3000)
# Thinking off in the spellings that servers of this model know, and token ids; others skip unknown members.
EXTRA: Final[Mapping[str, Any]] = {
    "think": False,
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    "return_token_ids": True,
}

Send = Callable[[str, list[dict[str, str]], Mapping[str, Any]], Reply | None]  # what, messages, fields


@dataclass(frozen=True, slots=True)
class Planted:
    """A code in the text."""

    key: str
    code: str
    depth: float


@dataclass(frozen=True, slots=True)
class DeepText:
    """A text of `tokens` prompt tokens; the codes are asked for in this order."""

    id: str
    tokens: int
    planted: tuple[Planted, ...]

    @property
    def hay_seed(self) -> str:
        """The seed of the text around the codes."""
        return f"{self.id}/hay"

    def message(self, hay: str) -> str:
        """The first user message: the text, and the question for the first code."""
        needles = [(one.depth, text.statement(one.key, one.code)) for one in self.planted]
        return text.user_message(text.document(hay, needles), text.question(self.planted[0].key))


@dataclass(slots=True)
class DeepTalk:
    """A deep conversation as far as it has come."""

    deep: DeepText
    messages: list[dict[str, str]] = field(default_factory=list)

    def open(self, hay: Hay, ruler: Ruler) -> None:
        """Put the first question, with a text of the planned length by this ruler."""
        frame = pieces(self.deep.message(""))
        body = cut(hay.sentences(self.deep.hay_seed), ruler.pieces(self.deep.tokens) - frame)
        self.messages = [user(self.deep.message(body))]

    def ask(self, *numbers: int) -> None:
        """Put the question for the codes of these numbers, in this order."""
        keys = [self.deep.planted[number].key for number in numbers]
        self.messages.append(user(text.follow_up(keys[0]) if len(keys) == 1 else text.questions(keys)))

    def take(self, reply: str) -> None:
        """Go on from this reply."""
        self.messages.append({"role": "assistant", "content": reply})

    def withdraw(self) -> None:
        """Take the last question back, because it got no reply."""
        self.messages.pop()


@dataclass(frozen=True, slots=True)
class Asking:
    """How requests of a deep conversation are sent: answers of at most so many tokens, in so many seconds."""

    reply_tokens: int
    deadline_s: float

    def ask(
        self,
        rig: Rig,
        what: str,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
        extra: Mapping[str, Any] = NOTHING,
        *,
        tries: int = TRIES,
    ) -> Reply | None:
        """Ask until there is a reply, as long as the server only says that it is full."""
        return ceiling.patiently(
            rig,
            what,
            messages,
            fields=fields,
            max_tokens=PROBE_TOKENS if what == PROBE else self.reply_tokens,
            deadline_s=self.deadline_s,
            extra={**EXTRA, **extra},
            tries=tries,
        )


def user(content: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": content}


def make_text(text_id: str, *, tokens: int, codes: int) -> DeepText:
    """The text of an id, which also seeds it: keys, codes and depths, spread evenly and then shuffled."""
    if not 0 < codes <= len(text.KEYS):
        raise UsageError(
            f"a deep text with {codes} codes: give 1 to {len(text.KEYS)}, as many as there are keys"
        )
    draw = random_for(text_id)
    keys = draw.sample(text.KEYS, codes)
    planted = [
        Planted(key, text.draw_code(draw), round(0.02 + 0.96 * (place + draw.random()) / codes, 4))
        for place, key in enumerate(keys)
    ]
    draw.shuffle(planted)
    return DeepText(text_id, tokens, tuple(planted))


def learn_ruler(hay: Hay, seed: str, send: Send) -> Ruler:
    """Tokens for each piece of this hay by the server's own count, from a short and a longer probe."""
    points: list[tuple[int, int]] = []
    for wanted in PROBE_PIECES:
        message = cut(hay.sentences(f"{seed}/probe/{wanted}"), wanted)
        reply = send(PROBE, [user(message)], {"pieces": pieces(message)})
        if reply and reply.usage.prompt_tokens:
            points.append((pieces(message), reply.usage.prompt_tokens))
    if len(points) < len(PROBE_PIECES):
        return Ruler(10.0, 1.25)  # a server that counts nothing: about what most vocabularies give
    return Ruler.from_probes(points[0], points[1])
