"""The rig: what a gate's `drive` is given to put traffic on the server and write it down.

Owns the one way in which a request becomes history events, so that every gate records the same fields, and
the liveness question after a lost request. Knows nothing of what is asked or how it is judged.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gates.errors import GivenUp, ServerDied
from gates.harness.baseline import Baseline
from gates.harness.client import Client, Message
from gates.harness.history import Event, History
from gates.harness.probe import Memory
from gates.harness.reply import NOTHING, BrokenOff, ClientError, CutShort, Gone, Refused, Reply


class Progress(Protocol):
    """What a drive tells the person who waits."""

    def cells(self, total: int, *, weights: Sequence[float] | None = None) -> None:
        """How many cells this gate will take; weights are their relative costs, for the time left."""

    def cell(self, label: str) -> None:
        """One cell starts; the label says which."""


LOST_IN_A_ROW = 3
DIED, STUCK = "server_died", "server_stuck"  # remarks in the history: why a drive stopped
FURTHER_ENDED = "further_server_ended"  # a remark: what a gate's own server left behind
SETTLED = "server_settled"  # a remark: what was still open after the last client had gone


@dataclass(slots=True)
class Rig:
    """Client, history and progress of one gate; `alive` asks whether the server under test still lives.

    `shards` are rigs of further servers with the same model, `control` that of one to compare with; `before`
    is what an interrupted drive of the same plan has recorded; `part` says which part of the items is asked,
    and of how many.  `further` starts one more server of the same model, with these words on its command
    line, and ends it; None where the run does not start our own engine.  One rig is for one thread: copies
    share all but the count of lost requests.
    """

    client: Client
    history: History
    progress: Progress
    alive: Callable[[], bool]
    data: Path | None  # the folder of SPARKGATE_DATA, if it is set
    context_tokens: int
    called: str = "the server under test"
    busy_elsewhere_s: Callable[[], float | None] = lambda: None  # processor time of everything but the server
    memory: Callable[[], Memory | None] = lambda: None  # what the server's processes hold, where it shows
    further: Callable[[Sequence[str]], AbstractContextManager[Rig]] | None = None
    pause: Callable[[float], None] = time.sleep  # seconds between two tries of anything
    stop_at_s: float = math.inf  # on the monotonic clock: far over the gate's budget
    before: Sequence[Event] = ()
    shards: tuple[Rig, ...] = ()
    control: Rig | None = None
    part: tuple[int, int] = (1, 1)
    baseline: Baseline | None = None  # what the run will be held against
    patience: int = LOST_IN_A_ROW
    lost_in_a_row: int = 0

    def chat(
        self,
        what: str,
        messages: Sequence[Message],
        *,
        fields: Mapping[str, Any],
        max_tokens: int,
        client: int = 0,
        temperature: float = 0.0,
        seed: int | None = None,
        stream: bool = True,
        deadline_s: float | None = None,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Reply | None:
        """One chat request, recorded; its reply, or None when there is no usable one. See `attempt`."""
        outcome = self.attempt(
            what,
            messages,
            fields=fields,
            max_tokens=max_tokens,
            client=client,
            temperature=temperature,
            seed=seed,
            stream=stream,
            deadline_s=deadline_s,
            extra=extra,
        )
        return outcome if isinstance(outcome, Reply) else None

    def attempt(
        self,
        what: str,
        messages: Sequence[Message],
        *,
        fields: Mapping[str, Any],
        max_tokens: int,
        client: int = 0,
        temperature: float = 0.0,
        seed: int | None = None,
        stream: bool = True,
        deadline_s: float | None = None,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Reply | ClientError:
        """One chat request, recorded: `fields` go on the invoke, the reply on its end.

        Returns the error where there is no usable reply. Raises ServerDied when the server is gone, GivenUp
        when it left `patience` requests in a row without an answer or the gate is far over its budget.
        """
        if time.monotonic() > self.stop_at_s:
            raise self._given_up("the gate had used up many times its budget")
        op = self.history.invoke(what, client=client, **fields)
        start_s, elsewhere_s = time.monotonic(), self.busy_elsewhere_s()
        try:
            reply = self.client.chat(
                messages,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                stream=stream,
                deadline_s=deadline_s,
                extra=extra,
            )
        except ClientError as error:
            self._lost(op, what, client, error)
            return error
        self.lost_in_a_row = 0
        busy = self._busy_elsewhere(start_s, elsewhere_s)
        self.history.ok(op, what, client=client, **reply_fields(reply), host_busy_ratio=busy)
        return reply

    def _busy_elsewhere(self, start_s: float, elsewhere_s: float | None) -> float | None:
        """The share of the host's processors that others used meanwhile; None where nobody can tell."""
        now_s = self.busy_elsewhere_s()
        if now_s is None or elsewhere_s is None:
            return None
        capacity_s = (time.monotonic() - start_s) * (os.cpu_count() or 1)
        return round(max(0.0, now_s - elsewhere_s) / max(capacity_s, 1e-6), 3)

    def _lost(self, op: int, what: str, client: int, error: ClientError) -> None:
        alive = self._alive_after(error)
        cause = {"error": type(error).__name__, "message": str(error), "alive": alive}
        if isinstance(error, CutShort):
            cause["text"] = error.text
        if isinstance(error, Refused):
            cause |= {"status": error.status, "code": error.code, "retry_after_s": error.retry_after_s}
        # A stream that a dying server cut is not a definite failure of the claim: nobody can tell.
        end = self.history.fail if error.definite and alive else self.history.unknown
        end(op, what, client=client, **cause)
        self.lost_in_a_row = 0 if error.definite else self.lost_in_a_row + 1
        if not alive:
            self.history.note(DIED, during=op, message=f"{self.called}: {error}")
            raise ServerDied(f"{self.called} died during '{what}': {error}")
        if self.lost_in_a_row >= self.patience:
            raise self._given_up(f"the server left {self.lost_in_a_row} requests in a row without an answer")

    def _given_up(self, message: str) -> GivenUp:
        self.history.note(STUCK, message=message)
        return GivenUp(message)

    def _alive_after(self, error: ClientError) -> bool:
        """Ask for a second after a lost connection: a dying process closes its sockets before it is gone."""
        lost = isinstance(error, Gone | CutShort) and not isinstance(error, BrokenOff)
        tries = 10 if lost else 1
        for _ in range(tries):
            if not self.alive():
                return False
            if tries > 1:
                self.pause(0.1)
        return True


def reply_fields(reply: Reply) -> dict[str, Any]:
    """What the history keeps of a reply."""
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "finish_reason": reply.finish_reason,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        "cached_tokens": reply.usage.cached_tokens,
        "total_tokens": reply.usage.total_tokens,
        "reasoning_tokens": reply.usage.reasoning_tokens,
        "first_token_s": reply.first_token_s,
        "seconds": round(reply.seconds, 6),
        "fragments": reply.fragments,
        "longest_pause_s": reply.longest_pause_s,
        "token_ids": list(reply.token_ids),
        "timings": dict(reply.timings),
        "model": reply.model,
        "left_out": list(reply.left_out),
    }
