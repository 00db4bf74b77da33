"""Renders the numbers in the Prometheus text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from engine.metrics import COUNTERS, HISTOGRAMS, Histogram, Metrics, Series

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(metrics: Metrics, gauges: Iterable[tuple[Series, float]]) -> str:
    """All counters, gauges and histograms; every series is there from the start."""
    values = metrics.snapshot()
    lines = [
        *_family("counter", ((series, values[key]) for key, series in COUNTERS.items())),
        *_family("gauge", gauges),
        *_histograms(metrics.histograms()),
    ]
    return "\n".join(lines) + "\n"


def _family(kind: str, entries: Iterable[tuple[Series, float]]) -> Iterator[str]:
    described = set()
    for series, value in entries:
        if series.name not in described:
            described.add(series.name)
            yield from _head(series, kind)
        label = f'{{{series.label}="{series.value}"}}' if series.label else ""
        yield f"{series.name}{label} {_number(value)}"


def _histograms(found: Mapping[str, Histogram]) -> Iterator[str]:
    for key, (series, _) in HISTOGRAMS.items():
        histogram = found[key]
        yield from _head(series, "histogram")
        bounds = [*map(_number, histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
            yield f'{series.name}_bucket{{le="{bound}"}} {count}'
        yield f"{series.name}_sum {_number(histogram.total)}"
        yield f"{series.name}_count {sum(histogram.counts)}"


def _head(series: Series, kind: str) -> Iterator[str]:
    yield f"# HELP {series.name} {series.help}"
    yield f"# TYPE {series.name} {kind}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"
