"""The log of requests: one line of key=value pairs an event.

No text of a prompt or of an answer and no key is ever written.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from engine.core import CacheKind, Timings
from engine.errors import EngineError
from engine.server.generation import Summary

log = logging.getLogger("engine.server.requests")
_PLAIN = re.compile(r"[\w.:/+-]+")


def pairs(**members: object) -> str:
    """The members as key=value, quoted where a value is not plain."""
    return " ".join(f"{key}={_value(value)}" for key, value in members.items())


def _value(value: object) -> str:
    if isinstance(value, CacheKind):
        value = value.value
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else '"' + re.sub(r"[^ -~]|[\"\\]", "?", text) + '"'


def answered(surface: str, *, request: str, answer: str, stream: bool, summaries: Sequence[Summary]) -> None:
    """An answer is complete; that of several choices is told with all their tokens."""
    times = Timings.of_all([summary.timings for summary in summaries])
    log.info(
        pairs(
            event="answered",
            request=request,
            answer=answer,
            surface=surface,
            stream=stream,
            finish="+".join(summary.end.value for summary in summaries),
            prompt=times.prompt_tokens,
            cached=times.cached_tokens,
            kind=times.kind,
            completion=sum(summary.completion_tokens for summary in summaries),
            queue_s=times.queue_s,
            ttft_s=times.first_token_s,
            total_s=times.total_s,
        )
    )


def refused(surface: str, *, request: str, error: EngineError) -> None:
    """A request got an error; its message may quote the client, so only the code is kept."""
    log.info(pairs(event="refused", request=request, surface=surface, status=error.status, code=error.code))


def failed(surface: str, *, request: str, answer: str, error: Exception) -> None:
    """An answer broke off after it was admitted; where a fault of ours lies is shown in the log."""
    known = error if isinstance(error, EngineError) else None
    code = known.code if known else type(error).__name__
    line = pairs(event="failed", request=request, answer=answer, surface=surface, code=code)
    log.warning(line, exc_info=None if known else error)


def left(surface: str, *, request: str, answer: str) -> None:
    """The client left before its answer was complete."""
    log.info(pairs(event="client_gone", request=request, answer=answer, surface=surface))
