"""Churns a server: rounds of questions to one deep conversation while short clients come and go around it.

Three phases: in quiet the deep text is read and a sample is asked; then rounds, short clients, cold controls
and disturbances run side by side; then the sample is asked again.  Writes what `check` needs, grades nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gates.churn import watch
from gates.churn.plan import ChurnPlan, Round, Session
from gates.churn.rude import Rude
from gates.errors import UsageError
from gates.harness import ceiling, crowd, scrape
from gates.harness.ceiling import Wave
from gates.harness.client import Message
from gates.harness.reply import ClientError, Reply
from gates.harness.rig import SETTLED, Rig
from gates.needle import text
from gates.needle.deep import EXTRA, Asking, DeepTalk, DeepText, learn_ruler, user
from gates.needle.hay import Hay, open_hay
from gates.needle.sizing import Ruler

BEGAN, ENDED, PLANNED = "churn_began", "churn_ended", "churn_planned"  # remarks in the history
REPLY_TOKENS: Final = 64  # one sentence needs about twelve
LONG_REPLY: Final = 400  # tokens of the answers that are left in the middle


def drive(plan: ChurnPlan, rig: Rig) -> None:
    """Churn; UsageError when the deep conversation does not fit the server's context."""
    if plan.context_tokens > rig.context_tokens:
        raise UsageError(
            f"a deep conversation of {plan.deep.tokens} tokens and {len(plan.rounds)} rounds needs a context"
            f" of {plan.context_tokens} tokens and the server has {rig.context_tokens}; start it with more,"
            " or lower pinned_tokens in the profile"
        )
    own = rig.further(("--cache-mib", str(plan.cache_mib))) if plan.cache_mib and rig.further else None
    with own or nullcontext(rig) as server:
        rig.history.note(
            PLANNED,
            rounds=len(plan.rounds),
            tokens=plan.deep.tokens,
            sample=len(plan.sample),
            own_budget=own is not None,
        )
        server.progress.cells(1 + plan.cells + 1)  # reading, the rounds, and the sample once more
        _Churn(plan, server, open_hay(plan.hay, rig.data)).run()


class _Churn:
    """The state of one drive."""

    def __init__(self, plan: ChurnPlan, rig: Rig, hay: Hay) -> None:
        self._plan = plan
        self._rig = rig
        self._hay = hay
        self._ruler = Ruler(10.0, 1.25)
        self._talk = DeepTalk(plan.deep)
        self._asking = Asking(REPLY_TOKENS, plan.deadline_s)
        self._over = threading.Event()

    def run(self) -> None:
        """All three phases."""
        self._ruler = learn_ruler(self._hay, self._plan.deep.id, partial(self._asking.ask, self._rig))
        self._rig.progress.cell(f"reading {self._plan.deep.tokens:,} tokens")
        self._begin()
        self._ask_sample("before")
        with watch.Watch(self._rig, watch.every_s(self._plan.minutes)), self._noted():
            self._together()
        self._rig.history.note(SETTLED, inflight=scrape.settled(self._rig.client, self._rig.pause))
        self._rig.progress.cell("asking the first sessions again")
        self._ask_sample("after")

    def _begin(self) -> None:
        """The first turn of the deep conversation, on a server that does not know its text."""
        self._talk.open(self._hay, self._ruler)
        pinned = {"pin_cache": True} if self._plan.pin else {}
        fields = _deep_fields(self._plan.deep, 0)
        reply = self._asking.ask(self._rig, "deep", self._talk.messages, fields, pinned)
        self._talk.take(reply.text if reply else "")

    @contextmanager
    def _noted(self) -> Iterator[None]:
        self._rig.history.note(BEGAN)
        yield
        self._rig.history.note(ENDED)

    def _together(self) -> None:
        """Rounds, short clients and cold controls side by side, until the rounds are over."""
        plan = self._plan
        jobs: list[Callable[[Rig], None]] = [
            self._all_rounds,
            self._all_cold,
            *(partial(self._short_client, client) for client in range(plan.clients)),
        ]
        desks = [replace(self._rig, lost_in_a_row=0) for _ in jobs]
        try:
            crowd.share(jobs, desks, lambda job, desk: job(desk))
        finally:
            self._over.set()

    def _all_rounds(self, rig: Rig) -> None:
        body = {"messages": [user("Tell a long story.")], "max_tokens": LONG_REPLY, "model": rig.client.model}
        rude = Rude(rig.client, rig.history, body)
        start_s, every_s = time.monotonic(), self._plan.minutes * 60 / len(self._plan.rounds)
        try:
            for one in self._plan.rounds:
                rig.progress.cell(f"round {one.number + 1}{', storm' if one.storm else ''}")
                self._disturb(rig, rude, one)
                self._recall(rig, one)
                time.sleep(max(0.0, start_s + every_s * (one.number + 1) - time.monotonic()))
        finally:
            self._over.set()
            rude.close()

    def _disturb(self, rig: Rig, rude: Rude, one: Round) -> None:
        for kind in one.leaves:
            rude.leave(kind)
        for kind in one.malformed:
            rude.malformed(kind)
        if one.storm:
            self._storm(rig, one)

    def _storm(self, rig: Rig, one: Round) -> None:
        plan, sessions = self._plan, range(self._plan.storm_requests)
        asked = [plan.session(plan.clients + one.number, number) for number in sessions]
        waves = [Wave([user(session.message)], _short_fields(session, 0)) for session in asked]
        ceiling.storm(rig, waves, max_tokens=plan.storm_tokens, deadline_s=plan.deadline_s, extra=EXTRA)

    def _recall(self, rig: Rig, one: Round) -> None:
        """Ask the deep conversation for its next code; a round without a reply leaves it as it was."""
        number = one.number + 1
        self._talk.ask(number)
        fields = {**_deep_fields(self._plan.deep, number), "round": one.number}
        reply = self._asking.ask(rig, "round", self._talk.messages, fields)
        if reply is None:
            self._talk.withdraw()
        else:
            self._talk.take(reply.text)

    def _all_cold(self, rig: Rig) -> None:
        """Ask each cold control once, spread over the churn: what a deep text costs without a cache."""
        plan, start_s = self._plan, time.monotonic()
        for place, deep in enumerate(plan.cold, start=1):
            due_s = start_s + plan.minutes * 60 * place / (len(plan.cold) + 1)
            if self._over.wait(max(0.0, due_s - time.monotonic())):
                return
            talk = DeepTalk(deep)
            talk.open(self._hay, self._ruler)
            self._asking.ask(rig, "cold", talk.messages, _deep_fields(deep, 0), {"pin_cache": False})

    def _short_client(self, client: int, rig: Rig) -> None:
        """One short session after the other, each on connections of its own."""
        number = 0
        while not self._over.is_set():
            session = self._plan.session(client, number)
            with rig.client.fresh() as wire:
                desk = replace(rig, client=wire)
                wait_s = self._session(desk, session, client)
            rig.lost_in_a_row = desk.lost_in_a_row
            self._over.wait(wait_s)
            number += 1

    def _session(self, rig: Rig, session: Session, client: int) -> float:
        """Two questions about one text, some ask the first again as another tenant; seconds to wait."""
        salted = {"cache_salt": session.salt} if self._plan.tenants > 1 else {}
        asked: list[Mapping[str, str]] = [user(session.message)]
        first = self._try(rig, "short", asked, _short_fields(session, 0), salted, client=client)
        if isinstance(first, ClientError):
            return ceiling.wait_s(first)
        if session.twin_salt:
            fields, salt = _short_fields(session, 0), {"cache_salt": session.twin_salt}
            self._try(rig, "twin", asked, fields, salt, client=client)
        asked += [{"role": "assistant", "content": first.text}, user(text.follow_up(session.keys[1]))]
        second = self._try(rig, "short_followup", asked, _short_fields(session, 1), salted, client=client)
        return ceiling.wait_s(second) if isinstance(second, ClientError) else 0.0

    def _ask_sample(self, when: str) -> None:
        """The accuracy sample, without the cache, so that before and after compute the same."""
        for session in self._plan.sample:
            fields, cold = _short_fields(session, 0), {"cache_prompt": False}
            self._asking.ask(self._rig, f"sample_{when}", [user(session.message)], fields, cold)

    def _try(
        self,
        rig: Rig,
        what: str,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
        extra: Mapping[str, Any],
        *,
        client: int = 0,
    ) -> Reply | ClientError:
        return rig.attempt(
            what,
            messages,
            fields={**fields, "max_tokens": REPLY_TOKENS},
            max_tokens=REPLY_TOKENS,
            client=client,
            deadline_s=self._plan.deadline_s,
            extra={**EXTRA, **extra},
        )


def _deep_fields(deep: DeepText, number: int) -> dict[str, Any]:
    one = deep.planted[number]
    return {"cell": deep.id, "planned_tokens": deep.tokens, "key": one.key, "expected": [one.code]}


def _short_fields(session: Session, number: int) -> dict[str, Any]:
    return {
        "cell": session.id,
        "key": session.keys[number],
        "expected": [session.codes[number]],
        "others": [session.codes[1 - number]],
        "salt": session.salt,
    }
