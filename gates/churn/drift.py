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


def drift(samples: Sequence[Sample], *, warm_up: float) -> Drift | None:
    """The drift after the first `warm_up` share of the time; None with too few samples."""
    if not samples:
        return None
    begin, end = samples[0].t_s, samples[-1].t_s
    start = begin + warm_up * (end - begin)
    middles = _middles([sample for sample in samples if sample.t_s >= start], start, end)
    if len(middles) < NEEDS:
        return None
    found = theil_sen([one.t_s / MINUTE_S for one in middles], [one.held_bytes for one in middles])
    quarter = len(middles) // 4
    first = median(one.held_bytes for one in middles[:quarter])
    last = median(one.held_bytes for one in middles[-quarter:])
    return Drift(found.value, found.interval, last / first if first else 1.0, len(middles))


def _middles(samples: Sequence[Sample], start: float, end: float) -> list[Sample]:
    """The median of each bucket of time, at the middle of its samples."""
    width = max((end - start) / BUCKETS, 1e-9)
    buckets: dict[int, list[Sample]] = {}
    for sample in samples:
        buckets.setdefault(min(BUCKETS - 1, int((sample.t_s - start) / width)), []).append(sample)
    return [
        Sample(median(one.t_s for one in held), median(one.held_bytes for one in held))
        for _, held in sorted(buckets.items())
    ]
