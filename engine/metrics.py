"""The one core of all numbers about the engine: what happened since it started, and how fast lately.

Owns the names, that counters only grow, and the buckets of histograms.  Knows nothing of how they are shown.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.core import CacheKind, FinishReason, Timings

OUTCOMES: Mapping[FinishReason, str] = {
    FinishReason.STOP: "completed",
    FinishReason.LENGTH: "completed",
    FinishReason.CANCELLED: "canceled",
    FinishReason.FAILED: "failed",
    FinishReason.REFUSED: "rejected",
}
SURFACES = ("openai_chat", "openai_completion", "anthropic_messages", "openai_responses")
REJECTIONS = (
    *("class_budget", "live_headroom", "queue_depth", "queue_age"),
    *("too_long", "bad_request", "unauthorized"),
)
SHEDS = ("clients", "queue_depth", "queue_bytes", "queue_age", "slow_reader")
KINDS = ("cold", "warm", "fork", "partial_fork", "partial_truncate", "disk")
WINDOW_S = 60
TIMES = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
COUNTS = (16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)


@dataclass(frozen=True, slots=True)
class Series:
    """How a number is called outside: name, meaning, and the label that tells it from its siblings."""

    name: str
    help: str
    label: str = ""
    value: str = ""


def _family(prefix: str, name: str, help: str, label: str, values: tuple[str, ...]) -> dict[str, Series]:
    return {f"{prefix}_{value}": Series(name, help, label, value) for value in values}


COUNTERS: Mapping[str, Series] = {
    "requests_started": Series("ds4_requests_started_total", "Requests that asked for an answer."),
    **_family(
        "requests",
        "ds4_requests_total",
        "Requests by how they ended.",
        "outcome",
        ("completed", "failed", "canceled", "rejected"),
    ),
    **_family("route", "ds4_route_requests_total", "Requests by API surface.", "surface", SURFACES),
    **_family(
        "think", "ds4_requests_think_total", "Requests by thinking effort.", "mode", ("none", "high", "max")
    ),
    **_family(
        "rejected", "ds4_requests_rejected_total", "Requests refused, by reason.", "reason", REJECTIONS
    ),
    **_family("shed", "ds4_requests_shed_total", "Requests given up under load.", "reason", SHEDS),
    **_family("admits", "ds4_admits_total", "Requests by where their prefix came from.", "kind", KINDS),
    **_family(
        "tokens_prefilled",
        "ds4_tokens_prefilled_total",
        "Prompt tokens by whether they had to be computed.",
        "kind",
        ("computed", "cached"),
    ),
    "tokens_decoded": Series("ds4_tokens_decoded_total", "Tokens of answers."),
    "steps": Series("ds4_steps_total", "Steps of the model."),
    **_family(
        "evictions", "ds4_evictions_total", "Kept sequences that yielded.", "tier", ("warm", "pinned")
    ),
    **_family(
        "spills",
        "ds4_spills_total",
        "Kept sequences to be stored on disk, by what became of them.",
        "result",
        ("stored", "failed", "skipped"),
    ),
    **_family(
        "recalls",
        "ds4_recalls_total",
        "Sequences read from disk, by what became of them.",
        "result",
        ("used", "unusable", "no_room"),
    ),
    **_family(
        "extensions",
        "ds4_credit_extensions_total",
        "Answers that outgrew the memory promised to them.",
        "result",
        ("granted", "refused"),
    ),
    "decode_rows": Series("ds4_decode_rows_total", "Rows of answers over all steps."),
    "decode_steps": Series("ds4_decode_steps_total", "Steps in which at least one answer grew."),
    "spec_drafts": Series("ds4_spec_drafts_total", "Tokens that speculation proposed."),
    "spec_hits": Series("ds4_spec_hits_total", "Proposed tokens that were right."),
    "spec_quench": Series("ds4_spec_quench_total", "Answers for which speculation was switched off."),
    **_family(
        "tool_parse", "ds4_tool_parse_total", "Tool blocks by how they read.", "result",
        ("ok", "repaired", "failed"),
    ),
}  # fmt: skip
HISTOGRAMS: Mapping[str, tuple[Series, tuple[float, ...]]] = {
    "ttft": (Series("ds4_ttft_seconds", "From the whole body to the first token."), TIMES),
    "queue": (Series("ds4_queue_seconds", "Waiting for a place."), TIMES),
    "request": (Series("ds4_request_seconds", "From the whole body to the end."), TIMES),
    "inter_token": (Series("ds4_inter_token_seconds", "Between two tokens of one answer."), TIMES),
    "prompt_tokens": (Series("ds4_prompt_tokens", "Prompt lengths."), COUNTS),
    "completion_tokens": (Series("ds4_completion_tokens", "Answer lengths."), COUNTS),
}
assert {kind.value for kind in CacheKind} <= set(KINDS)


@dataclass(slots=True)
class Histogram:
    """How many values fell into each bucket; `counts` has one more entry than `bounds`, for what is above."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value; a bound belongs to the bucket below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class Rates:
    """What the last minute was like: tokens a second, tokens a step, rows a step."""

    decode_tok_s: float
    prefill_tok_s: float
    tok_per_step: float
    batch_mean: float


@dataclass(slots=True)
class Metrics:
    """Thread-safe numbers, all present from the start at zero."""

    clock: Callable[[], float] = time.monotonic
    _values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    _histograms: dict[str, Histogram] = field(init=False)
    _seconds: dict[int, dict[str, int]] = field(default_factory=dict)  # what was added in each late second
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _born: float = field(init=False)

    def __post_init__(self) -> None:
        self._born = self.clock()
        self._histograms = {key: Histogram(bounds) for key, (_, bounds) in HISTOGRAMS.items()}

    def add(self, name: str, amount: int = 1) -> None:
        """Count up; the name must be one of COUNTERS."""
        if amount < 0:
            raise ValueError(f"counter {name} cannot go down by {-amount}")
        second = int(self.clock())
        with self._lock:
            self._values[name] = self._values[name] + amount
            recent = self._seconds.setdefault(second, {})
            recent[name] = recent.get(name, 0) + amount
            if len(self._seconds) > WINDOW_S + 1:
                del self._seconds[min(self._seconds)]

    def observe(self, name: str, value: float, *, times: int = 1) -> None:
        """Put a value into one of HISTOGRAMS."""
        with self._lock:
            for _ in range(times):
                self._histograms[name].observe(value)

    def reject(self, reason: str) -> None:
        """Count a request that was refused before it began; it started and ended at once."""
        self.add("requests_started")
        self.add("requests_rejected")
        self.add(f"rejected_{reason}")

    def ended(self, reason: FinishReason, timings: Timings) -> None:
        """Count the outcome of a request and its times."""
        self.add(f"requests_{OUTCOMES[reason]}")
        self.observe("queue", timings.queue_s)
        self.observe("request", timings.total_s)
        self.observe("prompt_tokens", timings.prompt_tokens)
        self.observe("completion_tokens", timings.generated_tokens)
        if timings.generated_tokens:
            self.observe("ttft", timings.first_token_s)

    def snapshot(self) -> dict[str, int]:
        """All counters at one moment."""
        with self._lock:
            return dict(self._values)

    def histograms(self) -> dict[str, Histogram]:
        """Copies of all histograms at one moment."""
        with self._lock:
            found = {}
            for key, kept in self._histograms.items():
                found[key] = copy = Histogram(kept.bounds)
                copy.counts, copy.total = list(kept.counts), kept.total
            return found

    def rates(self) -> Rates:
        """The rates of the last minute, or of the time since the start if that is shorter."""
        now = self.clock()
        with self._lock:
            recent = [added for second, added in self._seconds.items() if second > now - WINDOW_S]
        span = max(1.0, min(WINDOW_S, now - self._born))
        decoded, prefilled, steps, rows = (
            sum(added.get(name, 0) for added in recent)
            for name in ("tokens_decoded", "tokens_prefilled_computed", "decode_steps", "decode_rows")
        )
        steps = max(1, steps)
        return Rates(decoded / span, prefilled / span, decoded / steps, rows / steps)
