"""Servers that lie: each is an honest one that differs in one behaviour, and every gate must catch its own.

A fault stands between the wire and a backend: the small honest `Reader`, or a real server behind it.
`python -m gates.tests.faults --fault forgets --port 8001 [--upstream http://127.0.0.1:8000]` serves one.
Knows how needle prompts look; knows nothing of measures and verdicts.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeGuard

from gates.needle import text
from gates.tests.reader import (
    Backend,
    Body,
    Cut,
    Delta,
    Die,
    End,
    Part,
    Reader,
    ReaderServer,
    Upstream,
    asked_keys,
    statements,
    usage,
)

QUESTION: Final = "\n\nQuestion: "


class Honest:
    """No fault: passes everything on; the twin of every other."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def answer(self, body: Body) -> Iterator[Part]:
        """The parts of the backend's reply to what it gets to see."""
        return self.spoil(body, self.backend.answer(self.seen(body)))

    def seen(self, body: Body) -> Body:
        """What the backend gets to see."""
        return body

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """What the client gets to see."""
        del body
        return parts


class Forgets(Honest):
    """Does not remember what stood in the first half of a text."""

    def seen(self, body: Body) -> Body:
        """The text without the needle sentences of its first half."""
        front, back = _halves(first_message(body), 0.5)
        for key, code in statements(front).items():
            front = front.replace(text.statement(key, code), "")
        return with_first_message(body, front + back)


class TruncatesContext(Honest):
    """Drops the front of a long text without a word, and reports the tokens of the whole."""

    def seen(self, body: Body) -> Body:
        """The last two thirds."""
        return with_first_message(body, _halves(first_message(body), 0.33)[1])

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Token counts scaled to the whole."""
        whole, kept = first_message(body), first_message(self.seen(body))
        for part in parts:
            if _counted(part):
                prompt = round(part.usage["prompt_tokens"] * len(whole) / max(1, len(kept)))
                part = with_prompt(part, prompt)
            yield part


class WrongConversation(Honest):
    """Gives the reply of the conversation before."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._before: list[Delta] = []

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The reply of the last first turn in place of this one."""
        if len(body["messages"]) > 1 or not is_long(body):
            yield from parts
            return
        *said, end = list(parts)
        told = self._before or said
        self._before = [part for part in said if isinstance(part, Delta)]
        yield from told
        yield with_completion(end, len(told)) if isinstance(end, End) else end


class StopsEarly(Honest):
    """Ends every reply after four tokens as if it were complete."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The first four fragments, and `stop`."""
        del body
        said = 0
        for part in parts:
            if isinstance(part, End):
                yield replace(with_completion(part, said), finish_reason="stop")
            elif said < 4:
                said += 1
                yield part


class CutsStream(Honest):
    """Closes the stream of long prompts before its end mark."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """All but the end."""
        for part in parts:
            if isinstance(part, End) and is_long(body):
                raise Cut
            yield part


class Hangs(Honest):
    """Never answers a long prompt, while `/health` stays green."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.released = threading.Event()

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Nothing until released."""
        if is_long(body):
            self.released.wait(600.0)
            raise Cut
        yield from parts


class Dies(Honest):
    """Is gone in the middle of its third long reply."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._long = 0

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Two good replies, then the end of the server."""
        self._long += is_long(body)
        for number, part in enumerate(parts):
            if self._long > 2 and number == 2:
                raise Die
            yield part


class Recounts(Honest):
    """Base of liars that change nothing but the token counts."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The parts with other counts on the end."""
        del body
        for part in parts:
            yield self.recount(part) if isinstance(part, End) and part.usage else part

    def recount(self, end: End) -> End:
        """The end with other counts."""
        return end


class InflatesPromptTokens(Recounts):
    """Counts a tenth more prompt tokens than there are."""

    def recount(self, end: End) -> End:
        """Prompt tokens times 1.1."""
        return with_prompt(end, round(1.1 * end.usage["prompt_tokens"]))


class ConstantPromptTokens(Recounts):
    """Reports the same prompt tokens for every prompt."""

    def recount(self, end: End) -> End:
        """Always 300."""
        return with_prompt(end, 300)


class ReportsNoUsage(Recounts):
    """Leaves the token counts out."""

    def recount(self, end: End) -> End:
        """No counts at all."""
        return replace(end, usage={})


class WrongTotal(Recounts):
    """Reports a total that is not the sum."""

    def recount(self, end: End) -> End:
        """The prompt tokens as the total."""
        return replace(end, usage={**end.usage, "total_tokens": end.usage["prompt_tokens"]})


class DoublesCompletionTokens(Honest):
    """Counts every generated token twice."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Completion tokens times two, and no ids that would tell."""
        del body
        for part in parts:
            if isinstance(part, Delta):
                yield Delta(part.text)
            else:
                yield with_completion(part, 2 * part.usage["completion_tokens"])


class CountsFragments(Honest):
    """Sends several tokens in one fragment and counts fragments as tokens."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Three tokens a fragment."""
        del body
        held, sent = "", 0
        for number, part in enumerate(parts, start=1):
            if isinstance(part, Delta):
                held += part.text
                if number % 3 == 0:
                    yield Delta(held)
                    held, sent = "", sent + 1
                continue
            yield Delta(held)
            yield with_completion(part, sent + 1)


class ClaimsCached(Honest):
    """Says that most of every long prompt came from the cache."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Nine tenths cached."""
        for part in parts:
            if _counted(part) and is_long(body):
                part = with_cached(part, part.usage["prompt_tokens"] * 9 // 10)
            yield part


class NeverCaches(Honest):
    """Computes every prompt anew, and says so."""

    def seen(self, body: Body) -> Body:
        """The same, with the cache off."""
        return {**body, "cache_prompt": False}


class RecomputesInSecret(NeverCaches):
    """Computes every second turn anew and says that it was cached."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Second turns with nearly all of the prompt as cached."""
        for part in parts:
            if _counted(part) and len(body["messages"]) > 1:
                part = with_cached(part, part.usage["prompt_tokens"] - 40)
            yield part


class SlowerWithDepth(Honest):
    """Takes longer to the first token the deeper the asked needle lies."""

    seconds = 0.6  # at the end of the text

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """A wait before the first part, by the depth of the first asked sentence."""
        message = first_message(body)
        known = statements(message)
        places = [message.find(text.statement(key, known[key])) for key in asked_keys(body) if key in known]
        if len(body["messages"]) == 1 and places:
            time.sleep(self.seconds * places[0] / len(message))
        yield from parts


class Rewrites(Honest):
    """Base of liars that change the words of a reply: waits for all of it, then sends another text."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The rewritten reply as one fragment for each word."""
        if not is_long(body):
            yield from parts
            return
        *said, end = list(parts)
        whole = "".join(part.text for part in said if isinstance(part, Delta))
        words = self.rewrite(body, whole).split(" ")
        if words == whole.split(" "):
            yield from said
        else:
            yield from (Delta(word if place == 0 else f" {word}") for place, word in enumerate(words))
        yield end

    def rewrite(self, body: Body, reply: str) -> str:
        """What is said in place of the honest reply."""
        del body
        return reply


class InventsAbsent(Rewrites):
    """Gives a value for a key that the text does not have."""

    def rewrite(self, body: Body, reply: str) -> str:
        """A made-up code in place of the denial."""
        keys = asked_keys(body)
        return text.statement(keys[0], "271828") if "not in the text" in reply else reply


class ReturnsDecoy(Rewrites):
    """Gives the code of another key of the same text."""

    def rewrite(self, body: Body, reply: str) -> str:
        """The codes of the asked keys replaced by one that was not asked for."""
        known, keys = statements(first_message(body)), asked_keys(body)
        others = [code for key, code in known.items() if key not in keys]
        for key in keys:
            if key in known and others:
                reply = reply.replace(known[key], others[-1])
        return reply


class ShufflesOrder(Rewrites):
    """Gives several codes in the order of the text backwards."""

    def rewrite(self, body: Body, reply: str) -> str:
        """The sentences turned round."""
        del body
        return ". ".join(reversed(reply.rstrip(".").split(". "))) + "."


class LongerNumber(Rewrites):
    """Puts a digit before every code, so that the code is only a part of a number."""

    def rewrite(self, body: Body, reply: str) -> str:
        """Codes with a leading seven."""
        del body
        for code in statements(reply).values():
            reply = reply.replace(code, f"7{code}")
        return reply


class RunsOn(Honest):
    """Repeats its reply until the token limit cuts it."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The reply again and again, and `length`."""
        *said, end = list(parts)
        limit = int(body["max_tokens"])
        if not is_long(body) or not said or not isinstance(end, End):
            yield from (*said, end)
            return
        yield from (said[number % len(said)] for number in range(limit))
        yield replace(with_completion(end, limit), finish_reason="length")


FAULTS: Final[Mapping[str, type[Honest]]] = {
    "honest": Honest,
    "forgets": Forgets,
    "wrong_conversation": WrongConversation,
    "truncates_context": TruncatesContext,
    "stops_early": StopsEarly,
    "runs_on": RunsOn,
    "cuts_stream": CutsStream,
    "hangs": Hangs,
    "dies": Dies,
    "inflates_prompt_tokens": InflatesPromptTokens,
    "constant_prompt_tokens": ConstantPromptTokens,
    "doubles_completion_tokens": DoublesCompletionTokens,
    "counts_fragments": CountsFragments,
    "reports_no_usage": ReportsNoUsage,
    "wrong_total": WrongTotal,
    "claims_cached": ClaimsCached,
    "never_caches": NeverCaches,
    "recomputes_in_secret": RecomputesInSecret,
    "slower_with_depth": SlowerWithDepth,
    "invents_absent": InventsAbsent,
    "returns_decoy": ReturnsDecoy,
    "shuffles_order": ShufflesOrder,
    "longer_number": LongerNumber,
}


def is_long(body: Body) -> bool:
    """Whether a request carries a needle text; probes do not."""
    return "access code" in first_message(body)


def first_message(body: Body) -> str:
    """The content of the first message: instruction, text and question."""
    return str(body["messages"][0]["content"])


def with_first_message(body: Body, content: str) -> Body:
    """The body with another first message."""
    first = {**body["messages"][0], "content": content}
    return {**body, "messages": [first, *body["messages"][1:]]}


def with_prompt(end: End, prompt: int) -> End:
    """The end with other prompt tokens, the total fitting."""
    total = prompt + end.usage["completion_tokens"]
    return replace(end, usage={**end.usage, "prompt_tokens": prompt, "total_tokens": total})


def with_completion(end: End, completion: int) -> End:
    """The end with other completion tokens, the total fitting."""
    total = end.usage["prompt_tokens"] + completion
    return replace(end, usage={**end.usage, "completion_tokens": completion, "total_tokens": total})


def with_cached(end: End, cached: int) -> End:
    """The end with other cached tokens."""
    return replace(end, usage=usage(end.usage["prompt_tokens"], end.usage["completion_tokens"], cached))


def _counted(part: Part) -> TypeGuard[End]:
    return isinstance(part, End) and bool(part.usage)


def _halves(message: str, share: float) -> tuple[str, str]:
    """The text before and after a share of the message; the question stays in the second part."""
    border = min(int(len(message) * share), message.rfind(QUESTION) if QUESTION in message else len(message))
    return message[:border], message[border:]


def main() -> None:
    """Serve one fault until told to end."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fault", choices=tuple(FAULTS), default="honest")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--upstream", help="base URL of a real server; without it the small reader answers")
    chosen = options.parse_args()
    backend: Backend = Upstream(chosen.upstream) if chosen.upstream else Reader()
    with ReaderServer(FAULTS[chosen.fault](backend), port=chosen.port) as server:
        server.wait()


if __name__ == "__main__":
    main()
