"""What can become of a chat request: a reply, or an error of one kind.

Knows nothing of JSON and sockets: how an answer is read is in `dialect.py`, the HTTP side in `client.py`.

ClientError            the request did not end in a usable reply
├── Refused            the server answered with an error status or an error object: definite
├── Malformed          the server answered with something that is not the dialect: definite
├── CutShort           the stream ended before its end: definite, a part of the reply is kept
│   └── BrokenOff      it has its end mark, but the server ended it, or does not say why it ended
├── Gone               no connection, or it was lost: nobody knows what became of the request
└── DeadlinePassed     no end within the deadline: nobody knows what became of the request
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, Any] = MappingProxyType({})


class ClientError(Exception):
    """Base of everything that keeps one request from ending in a usable reply."""

    definite = False


class Refused(ClientError):  # noqa: N818  named for the event, as it appears in the history
    """An error status, or an error object inside a stream; `status` is 200 for the latter.

    `retry_after_s` is when the server wants to be asked again, if it says so in seconds.
    """

    definite = True

    def __init__(
        self, status: int, message: str, code: str | None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class Malformed(ClientError):  # noqa: N818
    """The answer is not the dialect; the message names what was found."""

    definite = True


class CutShort(ClientError):  # noqa: N818
    """The stream ended without a finish reason, or without `[DONE]` and counts; `text` is what had come."""

    definite = True

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class BrokenOff(CutShort):
    """A whole answer whose reply is none: without a finish reason, or ended by the server."""


class Gone(ClientError):  # noqa: N818
    """The connection could not be made or was lost."""


class DeadlinePassed(ClientError):  # noqa: N818
    """The request had not ended when its deadline passed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the server reports them; None where it does not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished chat reply; times are seconds from the moment before the request was sent.

    `left_out` are members that the request was sent without, because the server refuses them.
    """

    text: str
    reasoning: str
    finish_reason: str
    usage: Usage
    seconds: float
    first_token_s: float | None  # first fragment with text, reasoning or tool call; None when not streamed
    fragments: int = 0
    fragment_s: tuple[float, ...] = ()
    token_ids: tuple[int, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    timings: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def longest_pause_s(self) -> tuple[float, float] | None:
        """From when to when the longest wait for a next fragment, or behind the last one for the end, was.

        None of a reply that was not streamed.
        """
        waits = pairwise((*self.fragment_s, self.seconds))
        return max(waits, key=lambda wait: wait[1] - wait[0], default=None)


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `/v1/models`."""

    id: str
    context_tokens: int | None
