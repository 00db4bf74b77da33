"""Servers that lie to the quality gate: each differs from an honest one in one behaviour.

A fault stands between the wire and a backend, as those of `gates.tests.faults` do.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gates.quality.asking import SEED
from gates.tests.faults import Honest, first_message, with_completion
from gates.tests.reader import Backend, Body, Delta, End, Part

WORDS: Final = ["nought", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
CUT_AT: Final = 5
LETTERS: Final[Mapping[str, str]] = {"A": "the first", "B": "the second", "C": "the third", "D": "the fourth"}


class WrongFormat(Honest):
    """Gives right answers in a form that nobody asked for: numbers and letters in words."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Words in place of each digit and of a letter that stands alone."""
        del body
        for part in parts:
            if isinstance(part, Delta) and not part.reasoning:
                text = re.sub(r"\d", lambda found: f" {WORDS[int(found.group())]}", part.text)
                part = replace(part, text=LETTERS.get(text.strip(), text))
            yield part


class StopsAtALength(Honest):
    """Ends every reply after a few tokens and calls that its end."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The first tokens of the reply itself."""
        del body
        said = thought = 0
        for part in parts:
            if isinstance(part, End):
                yield replace(with_completion(part, said + thought), finish_reason="stop")
            elif part.reasoning:
                thought += 1
                yield part
            elif said < CUT_AT:
                said += 1
                yield part


class ThinksInTheFastArm(Honest):
    """Thinks whatever a request says."""

    def seen(self, body: Body) -> Body:
        """The same with thinking."""
        return {**body, "thinking": {"type": "enabled"}}


class ThinksInSecret(ThinksInTheFastArm):
    """The same, and shows none of it; only the counts tell."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The parts without reasoning, twenty tokens of which were counted."""
        del body
        for part in parts:
            if isinstance(part, End):
                yield with_completion(part, part.usage["completion_tokens"] + 20)
            elif not part.reasoning:
                yield Delta(part.text)


class NeverThinks(Honest):
    """Never thinks, whatever a request says."""

    def seen(self, body: Body) -> Body:
        """The same without thinking."""
        return {**body, "thinking": {"type": "disabled"}}


@dataclass(eq=False, slots=True)
class Flight:
    """A request that is under way, and the one that it is mixed up with."""

    body: Body
    partner: Flight | None = None


class ExchangesReplies(Honest):
    """Gives two clients whose requests cross, however shortly, each the reply of the other."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._lock = threading.Lock()
        self._open: list[Flight] = []

    def answer(self, body: Body) -> Iterator[Part]:
        """The reply to whoever came while this one was computed, or was there before; else its own."""
        mine = Flight(body)
        with self._lock:
            mine.partner = next((other for other in self._open if other.partner is None), None)
            if mine.partner is not None:
                mine.partner.partner = mine
            self._open.append(mine)
        own = list(self.backend.answer(body))
        with self._lock:
            self._open.remove(mine)
        return iter(own if mine.partner is None else list(self.backend.answer(mine.partner.body)))


class InflatesCompletionTokens(Honest):
    """Counts half as many tokens again as a reply has, and tells no ids."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """More completion tokens."""
        del body
        for part in parts:
            if isinstance(part, Delta):
                yield Delta(part.text, reasoning=part.reasoning)
            else:
                yield with_completion(part, part.usage["completion_tokens"] * 3 // 2)


class Canned(Honest):
    """Knows its replies by the words of a question, whatever its numbers are."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._known: dict[str, list[Part]] = {}

    def answer(self, body: Body) -> Iterator[Part]:
        """The reply to the first question of these words."""
        if len(body["messages"]) > 1:
            return self.backend.answer(body)
        words = re.sub(r"\d", "", first_message(body)) + str(body.get("thinking"))
        if words not in self._known:
            self._known[words] = list(self.backend.answer(body))
        return iter(self._known[words])


class RemembersReplies(Honest):
    """Gives a repeated question its old reply at once."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._known: dict[str, list[Part]] = {}

    def answer(self, body: Body) -> Iterator[Part]:
        """The remembered reply, else a computed one."""
        asked = str([body["messages"], body.get("thinking"), body["max_tokens"], body.get("seed")])
        if asked not in self._known:
            told = self._known[asked] = []
            for part in self.backend.answer(body):
                told.append(part)
                yield part
            return
        yield from self._known[asked]


class KnowsOneSeed(Honest):
    """Is quick with the usual seed only."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """A wait before the first part for any other seed."""
        if body.get("seed") != SEED:
            time.sleep(0.5)  # plain also where the host is slow
        yield from parts


class StreamsOtherwise(Honest):
    """Begins a streamed reply otherwise than a whole one."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """A word before a whole reply."""
        if not body.get("stream"):
            yield Delta("Well, ")
        yield from parts


FAULTS: Final[Mapping[str, type[Honest]]] = {
    "honest": Honest,
    "wrong_format": WrongFormat,
    "stops_at_a_length": StopsAtALength,
    "thinks_in_the_fast_arm": ThinksInTheFastArm,
    "thinks_in_secret": ThinksInSecret,
    "never_thinks": NeverThinks,
    "exchanges_replies": ExchangesReplies,
    "inflates_completion_tokens": InflatesCompletionTokens,
    "canned": Canned,
    "remembers_replies": RemembersReplies,
    "knows_one_seed": KnowsOneSeed,
    "streams_otherwise": StreamsOtherwise,
}

# The claims that each fault must break; others may break too.
BREAKS: Final[Mapping[str, frozenset[str]]] = {
    "wrong_format": frozenset({"quality.unparsed_ratio", "quality.score_margin_ratio"}),
    "stops_at_a_length": frozenset({"quality.score_margin_ratio", "quality.length_ratio"}),
    "thinks_in_the_fast_arm": frozenset({"quality.fast_in_force_ratio"}),
    "thinks_in_secret": frozenset({"quality.fast_in_force_ratio"}),
    "never_thinks": frozenset({"quality.thinking_in_force_ratio"}),
    "exchanges_replies": frozenset({"quality.crosstalk_count"}),
    "inflates_completion_tokens": frozenset({"quality.usage_error_ratio"}),
    "canned": frozenset({"quality.canned_ratio"}),
    "remembers_replies": frozenset({"quality.repeat_saving_ratio"}),
    "knows_one_seed": frozenset({"quality.seed_speed_ratio"}),
    "streams_otherwise": frozenset({"quality.first_token_ratio"}),
}
