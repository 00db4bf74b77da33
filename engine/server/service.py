"""The loaded model as the server sees it, and the place where it appears once it is loaded.

Owns the life cycle: loading, ready, draining or failed.  Knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from engine.chat.markers import Markers
from engine.chat.replay import Replay
from engine.chat.request import ChatRequest, Prompt, RawPrompt
from engine.chat.rules import Rules
from engine.chat.template import EffortPrefixes, encode_segments, raw, render
from engine.errors import ContextLengthError, NotReadyError, RequestError, shown
from engine.loop import Engine
from engine.metrics import Metrics
from engine.server.mailbox import Mailbox
from engine.server.traffic import Traffic
from engine.tokenizer import Tokenizer

Status = Literal["loading", "ok", "draining", "stalled", "failed"]


@dataclass(frozen=True, slots=True)
class Service:
    """One loaded model behind its engine, which wakes the mailbox; `context` in tokens."""

    engine: Engine
    tokenizer: Tokenizer
    markers: Markers
    model_id: str
    display_name: str
    context: int
    rules: Rules
    mailbox: Mailbox
    prefixes: EffortPrefixes = field(default_factory=EffortPrefixes)
    replay: Replay = field(default_factory=Replay)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        return self.markers.stops

    def prompt_ids(self, prompt: Prompt, *, member: str = "messages") -> tuple[int, ...]:
        """The prompt's ids; raises ContextLengthError, for a hopelessly long text before it is encoded.

        `member` is what errors name.
        """
        if isinstance(prompt, RawPrompt) and prompt.ids is not None:
            ids = self.checked_ids(prompt.ids, member)
        else:
            segments = (
                render(prompt, prefixes=self.prefixes, replay=self.replay)
                if isinstance(prompt, ChatRequest)
                else raw(prompt)
            )
            least = sum(len(segment.text) for segment in segments) // self.tokenizer.longest_token_bytes
            if least >= self.context:  # characters: never more than bytes
                raise ContextLengthError(prompt_tokens=least, context_tokens=self.context, param=member)
            ids = tuple(encode_segments(self.tokenizer, segments))
        if len(ids) >= self.context:
            raise ContextLengthError(prompt_tokens=len(ids), context_tokens=self.context, param=member)
        return ids

    def checked_ids(self, ids: tuple[int, ...], member: str) -> tuple[int, ...]:
        """The same ids; raises RequestError for the first that the vocabulary lacks."""
        for index, token in enumerate(ids):
            if not 0 <= token < len(self.tokenizer):
                raise RequestError(
                    f"{member}.{index} is {shown(token)}; "
                    f"ids of this vocabulary are 0 to {len(self.tokenizer) - 1}",
                    param=f"{member}.{index}",
                )
        return ids


@dataclass(slots=True)
class Host:
    """Holds the service from the moment it is loaded until the server drains."""

    stall_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    created: int = field(default_factory=lambda: int(time.time()))
    traffic: Traffic = field(default_factory=Traffic)
    _phase: Status = "loading"
    _service: Service | None = None
    _ready_at: float = 0.0

    @property
    def status(self) -> Status:
        """Where the server is in its life; `failed` when the engine's thread ended by itself.

        `stalled` when requests are open and no token moved for `stall_s`; it mends itself when one does.
        """
        if self._phase != "ok" or self._service is None:
            return self._phase
        if not self._service.engine.accepting:
            return "failed"
        return "stalled" if self._service.engine.stalled_s > self.stall_s else "ok"

    @property
    def open_requests(self) -> int:
        """Answers that are being made or wait."""
        if self._service is None:
            return 0
        stats = self._service.engine.stats()
        return stats.running + stats.queued

    def ready(self, service: Service) -> None:
        """The model is loaded; a server that drains already does not begin to serve."""
        self._ready_at = self.clock()
        self._service = service
        if self._phase == "loading":
            self._phase = "ok"

    def drain(self) -> None:
        """Take no further requests."""
        self._phase = "draining"

    def close(self) -> None:
        """Stop the engine, if there is one."""
        self.drain()
        if self._service is not None:
            self._service.engine.close()
            self._service.rules.close()

    def now(self) -> int:
        """Unix seconds, for the `created` of an answer."""
        return int(time.time())

    @property
    def uptime_s(self) -> float:
        """Seconds since the model was ready."""
        return self.clock() - self._ready_at if self._service else 0.0

    @property
    def metrics(self) -> Metrics | None:
        """The numbers of the engine, once there is one."""
        return self._service.engine.metrics if self._service else None

    @property
    def service(self) -> Service:
        """The loaded model; raises NotReadyError before and after its time."""
        if self.status != "ok" or self._service is None:
            raise NotReadyError(f"the server is {self.status}; try again soon", retry_after_s=5)
        return self._service
