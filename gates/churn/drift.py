"""Does the memory of a server grow?  A robust slope with its interval, and the last quarter over the first.

Pure numbers in, pure numbers out; knows nothing of events and limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.harness.stats import Interval, theil_sen

BUCKETS: Final = 24  # single samples follow each other too closely to be taken as independent
QUARTER: Final = BUCKETS // 4
NEEDS: Final = 12  # buckets with a sample, below which nobody can tell
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server held at one moment."""

    t_s: float
    held_bytes: float


@dataclass(frozen=True, slots=True)
class Drift:
    """Bytes a minute with the 95 % interval, and the median of the last quarter over that of the first."""

    slope: float
    interval: Interval
    quarters: float
    n: int


def drift(samples: Sequence[Sample], *, span_s: float, warm_up: float) -> Drift | None:
    """The drift of `span_s` seconds after the first `warm_up` share of them.

    None with too few samples, or with none in the first or the last quarter: who stops looking sees no leak.
    """
    start = warm_up * span_s
    middles = _middles([sample for sample in samples if sample.t_s >= start], start, span_s)
    first = [one.held_bytes for bucket, one in middles.items() if bucket < QUARTER]
    last = [one.held_bytes for bucket, one in middles.items() if bucket >= BUCKETS - QUARTER]
    if len(middles) < NEEDS or not first or not last:
        return None
    seen = list(middles.values())
    found = theil_sen([one.t_s / MINUTE_S for one in seen], [one.held_bytes for one in seen])
    before = median(first)
    return Drift(found.value, found.interval, median(last) / before if before else 1.0, len(seen))


def _middles(samples: Sequence[Sample], start: float, end: float) -> dict[int, Sample]:
    """The median of each bucket of time, at the middle of its samples; by the number of the bucket."""
    width = max((end - start) / BUCKETS, 1e-9)
    buckets: dict[int, list[Sample]] = {}
    for sample in samples:
        buckets.setdefault(min(BUCKETS - 1, int((sample.t_s - start) / width)), []).append(sample)
    return {
        bucket: Sample(median(one.t_s for one in held), median(one.held_bytes for one in held))
        for bucket, held in sorted(buckets.items())
    }
