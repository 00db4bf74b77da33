"""The metrics core: counters that only grow, buckets, and rates of the last minute."""

from __future__ import annotations

import pytest

from engine.core import CacheKind, FinishReason, Timings
from engine.metrics import COUNTERS, TIMES, Metrics

TIMINGS = Timings(
    prompt_tokens=10,
    cached_tokens=4,
    generated_tokens=3,
    queue_s=0.5,
    prefill_s=1.5,
    decode_s=2.0,
    total_s=4.0,
    batch_mean=1.0,
    kind=CacheKind.COLD,
)


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_every_counter_is_there_at_zero_and_none_goes_down() -> None:
    metrics = Metrics()

    assert dict.fromkeys(COUNTERS, 0) == metrics.snapshot()
    with pytest.raises(ValueError, match="cannot go down"):
        metrics.add("steps", -1)
    with pytest.raises(KeyError):
        metrics.add("nothing")


def test_a_refused_request_has_started_and_ended() -> None:
    metrics = Metrics()
    metrics.reject("too_long")
    found = {name: value for name, value in metrics.snapshot().items() if value}

    assert {"requests_started": 1, "requests_rejected": 1, "rejected_too_long": 1} == found


def test_an_ended_request_fills_the_histograms() -> None:
    metrics = Metrics()
    metrics.ended(FinishReason.LENGTH, TIMINGS)
    found = metrics.histograms()

    assert 1 == metrics.snapshot()["requests_completed"]
    assert 2.0 == found["ttft"].total
    assert 1 == found["ttft"].counts[TIMES.index(2.5)]
    assert (10, 3) == (found["prompt_tokens"].total, found["completion_tokens"].total)


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    metrics = Metrics()
    for value in (0.0, 0.001, 0.0011, 1e9):
        metrics.observe("queue", value)
    counts = metrics.histograms()["queue"].counts

    assert [2, 1] == counts[:2]
    assert 1 == counts[-1]


def test_rates_forget_what_is_older_than_a_minute() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    metrics.add("tokens_decoded", 600)
    metrics.add("decode_steps", 300)
    clock.now += 30
    early = metrics.rates()
    clock.now += 31
    late = metrics.rates()

    assert (20.0, 2.0) == (early.decode_tok_s, early.tok_per_step)
    assert 0.0 == late.decode_tok_s
    assert 600 == metrics.snapshot()["tokens_decoded"]
