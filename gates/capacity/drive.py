"""Fills a server: two deep conversations, more until the budget is full, then a storm at the ceiling.

What is live is not what the server says but what it can show: the next turn of a conversation, from cache.
Writes what `check` needs, grades nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gates.capacity.plan import TOGETHER, CapacityPlan
from gates.errors import UsageError
from gates.harness import ceiling, crowd, scrape
from gates.harness.ceiling import Wave
from gates.harness.rig import SETTLED, Rig
from gates.needle.deep import EXTRA, TRIES, Asking, DeepTalk, DeepText, learn_ruler
from gates.needle.hay import open_hay
from gates.needle.sizing import Ruler

PLANNED, FILLED = "capacity_planned", "budget_filled"  # remarks in the history
REPLY_TOKENS: Final = 128  # three sentences need about forty
STORM_AFTER_S: Final = 0.2  # how long the deep ones are left alone before the storm

Job = Callable[[Rig], None]


def drive(plan: CapacityPlan, rig: Rig) -> None:
    """Fill; UsageError when a conversation does not fit the server's context."""
    if plan.context_tokens > rig.context_tokens:
        raise UsageError(
            f"the longest conversation needs a context of {plan.context_tokens} tokens and the server has"
            f" {rig.context_tokens}; start it with more, or shorten it in the profile"
        )
    own = rig.further(("--cache-mib", str(plan.cache_mib))) if plan.cache_mib and rig.further else None
    with own or nullcontext(rig) as server:
        rig.history.note(PLANNED, deep=[deep.tokens for deep in plan.deep], own_budget=own is not None)
        server.progress.cells(plan.cells)
        _Filling(plan, server).run()


class _Filling:
    """The state of one drive."""

    def __init__(self, plan: CapacityPlan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._hay = open_hay(plan.hay, rig.data)
        self._ruler = Ruler(10.0, 1.25)
        self._asking = Asking(REPLY_TOKENS, plan.deadline_s)
        self._deep = [DeepTalk(deep) for deep in plan.deep]

    def run(self) -> None:
        """Deep ones, both at once, fillers, all again, the storm, the deep ones once more."""
        self._ruler = learn_ruler(self._hay, self._plan.deep[0].id, partial(self._asking.ask, self._rig))
        for talk in self._deep:
            self._rig.progress.cell(f"reading {talk.deep.tokens:,} tokens")
            self._begin(talk, "deep", {"pin_cache": True} if self._plan.pin else {})
        self._side_by_side("together", first=1)
        self._show(self._fill())
        self._rig.progress.cell("storm")
        self._side_by_side("in_storm", first=1 + TOGETHER, beside=(self._storm,))
        for talk in self._deep:
            self._turn(self._rig, talk, "warm", 2 + 2 * TOGETHER)
        self._rig.history.note(SETTLED, inflight=scrape.settled(self._rig.client, self._rig.pause))

    def _begin(self, talk: DeepTalk, what: str, extra: Mapping[str, Any]) -> bool:
        """The first turn of a conversation; whether it got a reply."""
        talk.open(self._hay, self._ruler)
        tries = 1 if what == "filler" else TRIES
        fields = _fields(talk.deep, 0)
        reply = self._asking.ask(self._rig, what, talk.messages, fields, extra, tries=tries)
        if reply:
            talk.take(reply.text)
        return reply is not None

    def _turn(self, rig: Rig, talk: DeepTalk, what: str, *numbers: int) -> None:
        """The next turn; one without a reply leaves the conversation as it was."""
        talk.ask(*numbers)
        reply = self._asking.ask(rig, what, talk.messages, _fields(talk.deep, *numbers))
        if reply:
            talk.take(reply.text)
        else:
            talk.withdraw()

    def _side_by_side(self, what: str, *, first: int, beside: tuple[Job, ...] = ()) -> None:
        """One turn of every deep conversation at the same time, each with an answer that lasts."""
        numbers = range(first, first + TOGETHER)
        turns: list[Job] = [partial(self._turn_of, talk, what, tuple(numbers)) for talk in self._deep]
        jobs = [*turns, *beside]
        desks = [replace(self._rig, lost_in_a_row=0) for _ in jobs]
        crowd.share(jobs, desks, lambda job, desk: job(desk))

    def _turn_of(self, talk: DeepTalk, what: str, numbers: tuple[int, ...], rig: Rig) -> None:
        self._turn(rig, talk, what, *numbers)

    def _fill(self) -> list[DeepTalk]:
        """More conversations until one had to yield or was refused; those that should be live."""
        live: list[DeepTalk] = []
        before = self._evictions()
        for deep in self._plan.fillers:
            self._rig.progress.cell(f"filling, {deep.tokens:,} tokens more")
            talk = DeepTalk(deep)
            if not self._begin(talk, "filler", {"pin_cache": False}):
                break
            live.append(talk)
            now = self._evictions()
            if before is None:
                before = now
            elif now is not None and now > before:
                live = live[round(now - before) :]
                break
        budget = scrape.read(self._rig.client).value(scrape.KV_BYTES, kind="budget")
        self._rig.history.note(FILLED, budget_bytes=budget, fillers=len(live))
        return live

    def _evictions(self) -> float | None:
        """How many conversations had to yield so far; None where the server does not say."""
        return scrape.read(self._rig.client).value(scrape.EVICTIONS)

    def _show(self, fillers: list[DeepTalk]) -> None:
        """The next turn of everything that is live: the newest first, so that showing makes none yield."""
        for talk in reversed(fillers):
            self._turn(self._rig, talk, "filler_again", 1)
        for talk in self._deep:
            self._turn(self._rig, talk, "warm", 1 + 2 * TOGETHER)

    def _storm(self, rig: Rig) -> None:
        time.sleep(STORM_AFTER_S)
        talks = [DeepTalk(deep) for deep in self._plan.storm]
        for talk in talks:
            talk.open(self._hay, self._ruler)
        waves = [Wave(talk.messages, _fields(talk.deep, 0)) for talk in talks]
        ceiling.storm(
            rig,
            waves,
            max_tokens=self._plan.storm_tokens,
            deadline_s=self._plan.deadline_s,
            extra=EXTRA,
        )


def _fields(deep: DeepText, *numbers: int) -> dict[str, Any]:
    asked = [deep.planted[number] for number in numbers]
    return {
        "cell": deep.id,
        "planned_tokens": deep.tokens,
        "key": ", ".join(one.key for one in asked),
        "expected": [one.code for one in asked],
    }
