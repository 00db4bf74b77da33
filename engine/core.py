"""The shared nouns: what a request is, what a step does, what comes back.

Knows nothing of tensors, HTTP or chat; every room may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; temperature 0 takes the most likely, lowest id on ties; top_k 0 is off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may come at one position of an answer.

    `forced`: these ids and nothing else; if there are any, the rest does not count.
    `allowed` [V]: True for ids that may be drawn; None for all.
    `greedy`: take the likeliest, whatever the request's own sampler says.
    `reluctant`: an id that, once drawn, is replaced by the likeliest other one, a bounded number of times.
    """

    forced: tuple[int, ...] = ()
    allowed: NDArray[np.bool_] | None = None
    greedy: bool = False
    reluctant: frozenset[int] = frozenset()


class TokenRule(Protocol):
    """Watches one answer and says what may come next."""

    def next(self, taken: tuple[int, ...]) -> Allowance:
        """Note the ids just added and say what may follow; first called with none.

        May take long, because it runs beside a step, on one thread at a time.
        An exception ends the request it belongs to, with its message if it is a RuleError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One generation: prompt ids in, at most `max_tokens` ids out.

    `seed` keys the random stream; `stop_ids` end the generation and are not part of it;
    `banned_ids` are never drawn; `reuse` = False neither takes nor leaves a cached prefix.
    `rule` says token by token what may follow; it belongs to this request alone.
    `top_logprobs` is how many likely tokens are reported beside each token; None reports none at all.
    `tenant`: cached prefixes are shared only among requests of one tenant.
    `pin`: whether what it leaves behind is kept longer than the rest; None leaves that to its length, or to
    what it continues.
    `follows`: another request with the same prompt; this one waits while that prompt is computed, and starts
    from it.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    stop_ids: frozenset[int] = frozenset()
    banned_ids: tuple[int, ...] = ()
    reuse: bool = True
    rule: TokenRule | None = field(default=None, compare=False)
    top_logprobs: int | None = None
    tenant: str = ""
    pin: bool | None = None
    follows: str | None = None


class FinishReason(Enum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"  # never started: there is no memory for it


class CacheKind(Enum):
    """Where the cached part of a prompt came from."""

    COLD = "cold"
    WARM = "warm"  # a finished sequence is continued in place
    FORK = "fork"  # a kept position inside a finished sequence is copied and continued
    DISK = "disk"  # either of them, after the request had its sequence brought back from disk


@dataclass(frozen=True, slots=True)
class Slice:
    """Tokens [start, stop) of one sequence for one step.

    ```
    tokens   | prompt ................ | generated ... |
    computed | in the cache ...| slice |
                            start    stop
    ```
    `samples`: the slice ends at the last known token, so its logits give the next one.
    `anchors`: keep a snapshot of the cache after this slice.
    """

    sequence: str
    start: int
    stop: int
    samples: bool
    anchors: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that starts now, from the first `cached` tokens of `source` (None: an empty cache).

    The source is a record, or by its name a running request.  WARM takes a record over and continues at its
    end; FORK starts at an anchor, after a copy of the page `copied` (from, to) that is half full there.
    `anchors` are what it keeps of the source's.
    """

    request: Request
    kind: CacheKind
    cached: int = 0
    source: int | str | None = None
    copied: tuple[int, int] | None = None
    anchors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Eviction:
    """A kept record that goes, and the bytes it frees.

    `replaced`: a newer record serves all that it did; else others need its place.
    """

    record: int
    tokens: int
    nbytes: int
    pinned: bool
    replaced: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step does, in this order: admit requests, forget records, run slices.

    A request may start from a record that goes in the same step.
    """

    admissions: tuple[Admission, ...] = ()
    slices: tuple[Slice, ...] = ()
    evictions: tuple[Eviction, ...] = ()

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not (self.admissions or self.slices)


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that left the scheduler, with the ids its cache holds."""

    request: Request
    reason: FinishReason
    computed: tuple[int, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The new ids that became part of an answer, and its end when it is over."""

    tokens: tuple[int, ...]
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds and counts of one request, measured by the engine's own clock."""

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    total_s: float
    batch_mean: float
    kind: CacheKind

    @property
    def first_token_s(self) -> float:
        """From submission to the first generated token."""
        return self.queue_s + self.prefill_s

    @classmethod
    def of_all(cls, several: Sequence[Timings]) -> Timings:
        """Those of requests with one prompt, as of one request: the first one's start, everybody's tokens."""
        first = several[0]
        if len(several) == 1:
            return first
        generated = sum(times.generated_tokens for times in several)
        rows = sum(times.batch_mean * times.generated_tokens for times in several)
        total = max(times.total_s for times in several)
        return replace(
            first,
            generated_tokens=generated,
            decode_s=max(0.0, total - first.first_token_s),
            total_s=total,
            batch_mean=rows / max(1, generated),
        )


@dataclass(frozen=True, slots=True)
class Started:
    """The request left the queue; `cached_tokens` of its prompt need no computing."""

    cached_tokens: int
    kind: CacheKind


@dataclass(frozen=True, slots=True)
class Generated:
    """One more token, with its natural-log probability and the likeliest ids, if they were asked for.

    Probabilities are the model's own, before temperature and bounds.  A forced id was not drawn: its is 1.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every request; `message` is set when it failed or was refused."""

    reason: FinishReason
    timings: Timings
    message: str | None = None


Event = Started | Generated | Finished
EventSink = Callable[[Event], None]
