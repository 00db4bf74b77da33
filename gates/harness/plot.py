"""A forest plot as SVG: one line a comparison, with its estimate, interval and limit.

Own writer: no font, display or library is needed, the same numbers give the same bytes, and the drawing
stands inside an HTML page as well as alone. Knows no sets and no verdicts but their three words.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gates.harness.paired import Decision

COLOURS: Final = {"pass": "#146c2e", "fail": "#b3261e", "unknown": "#8a5a00"}
_LABELS, _PLOT, _NUMBERS, _ROW, _TOP, _FOOT = 190, 420, 250, 30, 34, 44  # pixels
_TICKS: Final = 4
_INK, _DIM, _LINE = "#1b1f24", "#5a6472", "#d5dae1"


@dataclass(frozen=True, slots=True)
class Bar:
    """One comparison: shares of change (0.01 is one per cent), positive to the right."""

    label: str
    decision: Decision
    estimate: float
    low: float
    high: float
    margin: float
    text: str  # what stands at the end of the line


def forest(bars: Sequence[Bar], *, axis: str) -> str:
    """The drawing: dot and interval of every bar, a notch at its margin, zero as a line."""
    reach = _reach(bars)
    width, height = _LABELS + _PLOT + _NUMBERS, _TOP + _ROW * len(bars) + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui,sans-serif" font-size="13" role="img">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_scale(reach, height, axis),
        *(part for place, bar in enumerate(bars) for part in _line(bar, place, reach)),
        "</svg>",
    ]
    return "".join(parts)


def _reach(bars: Sequence[Bar]) -> float:
    """Half of the axis: the largest finite end or margin, rounded up to a readable step."""
    ends = [abs(end) for bar in bars for end in (bar.low, bar.high, bar.estimate, bar.margin)]
    largest = max((min(end, 1.0) for end in ends if math.isfinite(end)), default=0.0) or 0.01
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= largest)


def _x(value: float, reach: float) -> float:
    clipped = max(-reach, min(reach, value))
    return round(_LABELS + _PLOT * (clipped + reach) / (2 * reach), 1)


def _scale(reach: float, height: int, axis: str) -> list[str]:
    bottom = height - _FOOT + 6
    parts = []
    for tick in range(-_TICKS // 2, _TICKS // 2 + 1):
        value = 2 * reach * tick / _TICKS
        x, colour = _x(value, reach), _LINE if tick else _DIM
        parts.append(f'<line x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{bottom}" stroke="{colour}"/>')
        parts.append(_text(x, bottom + 15, f"{100 * value:+.3g} %" if tick else "0", anchor="middle"))
    parts.append(_text(_LABELS + _PLOT / 2, bottom + 33, axis, anchor="middle", colour=_DIM))
    return parts


def _line(bar: Bar, place: int, reach: float) -> list[str]:
    y = _TOP + _ROW * place + _ROW / 2
    low, high, dot, margin = (_x(v, reach) for v in (bar.low, bar.high, bar.estimate, bar.margin))
    colour = COLOURS[bar.decision]
    return [
        _text(_LABELS - 12, y + 4, bar.label, anchor="end"),
        f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>',
        f'<circle cx="{dot}" cy="{y}" r="4.5" fill="{colour}"/>',
        f'<line x1="{margin}" y1="{y - 9}" x2="{margin}" y2="{y + 9}" stroke="{_INK}" stroke-width="2" '
        'stroke-dasharray="3 2"/>',
        _text(_LABELS + _PLOT + 14, y + 4, bar.text, colour=colour),
    ]


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = _INK) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'
