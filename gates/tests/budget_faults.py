"""Servers that lie about memory: what they keep, whose it is, and what they say when they are full.

Each differs in one behaviour from the backend it stands in front of: the small honest `Keeper`, or a real
server.  `python -m gates.tests.budget_faults --fault leaks --port 8001 [--upstream URL]` serves one.
Knows nothing of measures and verdicts.
"""

from __future__ import annotations

import argparse
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol

from gates.tests import faults
from gates.tests.keeper import Keeper
from gates.tests.reader import Answered, Backend, Body, Cut, Delta, End, Part, ReaderServer, Upstream, usage

MIB: Final = 2**20
_CODE: Final = re.compile(r"\d{6}")


class Counting(Backend, Protocol):
    """A backend that also counts what it does."""

    def metrics(self) -> str:
        """The text of `/metrics`."""


class Honest(faults.Honest):
    """No fault: passes everything on, its counters too."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self.counting = backend

    def metrics(self) -> str:
        """What the backend counts."""
        return self.counting.metrics()


class NeverKeeps(Honest):
    """Lets every deep conversation go as soon as it is idle, and says so."""

    def seen(self, body: Body) -> Body:
        """Later turns with the cache off."""
        return {**body, "cache_prompt": False} if len(body["messages"]) > 1 else body


class ForgetsSilently(NeverKeeps):
    """Computes every later turn anew and claims that it came from the cache."""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """Nearly all of the prompt as cached."""
        for part in parts:
            if isinstance(part, End) and part.usage and len(body["messages"]) > 1:
                part = faults.with_cached(part, part.usage["prompt_tokens"] - 40)
            yield part


class EvictsPinned(Honest):
    """Lets pinned conversations go before all others."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        if isinstance(backend, Keeper):
            backend.pinned_first = True


class Leaks(Honest):
    """Keeps a megabyte of every request for ever."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self.leaked: list[bytearray] = []

    def seen(self, body: Body) -> Body:
        """The same, and a megabyte is gone."""
        self.leaked.append(bytearray(b"x" * MIB))
        return body


class SharesTenants(Honest):
    """Takes prefixes from the cache whoever they belong to."""

    def seen(self, body: Body) -> Body:
        """The request without its tenant."""
        return {name: value for name, value in body.items() if name != "cache_salt"}


class AnswersStrangers(Honest):
    """Gives every fifth answer the code of the client before: the wrong prefix was restored."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self._asked, self._code = 0, ""

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The answer with another conversation's code in it."""
        del body
        *said, end = list(parts)
        whole = "".join(part.text for part in said if isinstance(part, Delta))
        self._asked += 1
        stranger, found = self._code, _CODE.findall(whole)
        self._code = found[-1] if found else stranger
        if self._asked % 5 == 0 and stranger and found:
            whole = whole.replace(found[-1], stranger)
            yield Delta(whole)
        else:
            yield from said
        yield end


class EmptyWhenFull(Honest):
    """Answers 200 with nothing in it instead of a refusal."""

    def answer(self, body: Body) -> Iterator[Part]:
        """The backend's answer, or the empty one."""
        try:
            yield from super().answer(body)
        except Answered as refusal:
            if refusal.status != 503:
                raise
            yield End("stop", usage(10, 0, 0))


class RefusesWithoutATime(Honest):
    """Refuses when it is full, but does not say when to come again."""

    def answer(self, body: Body) -> Iterator[Part]:
        """The refusal without its header."""
        try:
            yield from super().answer(body)
        except Answered as refusal:
            raise Answered(refusal.status, refusal.body) from None


class DeadlocksWhenFull(Honest):
    """Once it was full it answers nobody any more, while `/health` stays green."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self.released, self._stuck = threading.Event(), False

    def answer(self, body: Body) -> Iterator[Part]:
        """Nothing, from the first refusal on."""
        if not self._stuck:
            try:
                yield from super().answer(body)
            except Answered:
                self._stuck = True
            else:
                return
        self.released.wait(600.0)
        raise Cut


class EndsAnother(Honest):
    """Makes room for a newcomer by ending an answer that is under way."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self._refusals = 0

    def answer(self, body: Body) -> Iterator[Part]:
        """An answer that breaks off when another request was refused meanwhile."""
        before = self._refusals
        try:
            for part in super().answer(body):
                if self._refusals > before:
                    raise Cut
                yield part
        except Answered:
            self._refusals += 1
            raise


class FailsOnMalformed(Honest):
    """Breaks with 500 on what is no request."""

    refusal = 500


class LeavesOpen(Honest):
    """Counts requests as open whose clients have gone."""

    def metrics(self) -> str:
        """Three requests that nobody waits for."""
        return re.sub(r"^ds4_requests_inflight .*$", "ds4_requests_inflight 3", super().metrics(), flags=re.M)


class WearsOut(Honest):
    """Answers wrongly once it has been churned: after forty requests its cold answers are off by one."""

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self._asked = 0

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The codes of late cold answers, each changed by one."""
        self._asked += 1
        late = self._asked > 40 and not body.get("cache_prompt", True)
        for part in parts:
            if late and isinstance(part, Delta):
                part = replace(part, text=part.text.translate(str.maketrans("123456789", "912345678")))
            yield part


class OneAtATime(Honest):
    """Decodes one conversation after the other."""

    at_once = 0  # parts of every answer that wait for nobody

    def __init__(self, backend: Counting) -> None:
        super().__init__(backend)
        self._turn = threading.Lock()

    def answer(self, body: Body) -> Iterator[Part]:
        """The backend's answer, when nobody else is answered."""
        parts = super().answer(body)
        yield from islice(parts, self.at_once)
        with self._turn:
            yield from parts


class BeginsTogether(OneAtATime):
    """Gives every conversation its first token at once, and then decodes one after the other."""

    at_once = 1


class KeepsWide(Honest):
    """Stores rows so wide that a quarter of the tokens fit: everything idle but pinned goes at once."""

    def metrics(self) -> str:
        """The budget four times as large as what it holds."""
        return re.sub(
            r'(kind="budget"\} )(\d+)', lambda found: f"{found[1]}{4 * int(found[2])}", super().metrics()
        )


FAULTS: Final[Mapping[str, type[Honest]]] = {
    "honest": Honest,
    "evicts_pinned": EvictsPinned,
    "never_keeps": NeverKeeps,
    "forgets_silently": ForgetsSilently,
    "leaks": Leaks,
    "shares_tenants": SharesTenants,
    "answers_strangers": AnswersStrangers,
    "empty_when_full": EmptyWhenFull,
    "refuses_without_a_time": RefusesWithoutATime,
    "deadlocks_when_full": DeadlocksWhenFull,
    "ends_another": EndsAnother,
    "fails_on_malformed": FailsOnMalformed,
    "leaves_open": LeavesOpen,
    "wears_out": WearsOut,
    "one_at_a_time": OneAtATime,
    "begins_together": BeginsTogether,
    "keeps_wide": KeepsWide,
}


class LyingServer(ReaderServer):
    """Serves one of them; the one that breaks on malformed requests breaks before its backend is asked."""

    def read(self, content: bytes) -> Body:
        """The request, or what the fault makes of one that is none."""
        try:
            return super().read(content)
        except Answered as refusal:
            raise Answered(getattr(self.backend, "refusal", refusal.status), refusal.body) from None


def main() -> None:
    """Serve one fault until told to end."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fault", choices=tuple(FAULTS), default="honest")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--upstream", help="base URL of a real server; without it the small keeper answers")
    options.add_argument("--budget-tokens", type=int, default=4000)
    chosen = options.parse_args()
    backend: Any = (
        Upstream(chosen.upstream) if chosen.upstream else Keeper(budget_tokens=chosen.budget_tokens)
    )
    with LyingServer(FAULTS[chosen.fault](backend), port=chosen.port) as server:
        server.wait()


if __name__ == "__main__":
    main()
