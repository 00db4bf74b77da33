"""Lines over time as SVG: points joined in order, each line with its name, dashes where something happened.

Own writer like `plot`: the same numbers give the same bytes, and every text is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LEFT, _WIDTH, _RIGHT, _TOP, _HEIGHT, _FOOT = 70, 620, 170, 30, 220, 46  # pixels
_INK, _DIM, _GRID, _MARK = "#1b1f24", "#5a6472", "#d5dae1", "#b3261e"
_COLOURS: Final = ("#1f5fa8", "#8a5a00", "#146c2e", "#6b3fa0")
_TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One row of points (x, y); `dots` draws each point as well."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


def chart(lines: Sequence[Line], *, x: str, y: str, marks: Sequence[float] = (), marked: str = "") -> str:
    """The drawing: both axes from 0, a dashed line at each of `marks`, whose meaning is `marked`."""
    points = [point for line in lines for point in line.points]
    reach_x = _reach([a for a, _ in points] + list(marks))
    reach_y = _reach([b for _, b in points])
    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui,sans-serif" font-size="13" role="img">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_axes(reach_x, reach_y, x, y),
        *(_mark(_across(at, reach_x)) for at in marks),
        *(part for place, line in enumerate(lines) for part in _line(line, place, reach_x, reach_y)),
    ]
    if marks:
        parts.append(
            _text(_LEFT + _WIDTH + 12, _TOP + 20 * len(lines) + 14, f"\u2506 {marked}", colour=_MARK)
        )
    return "".join([*parts, "</svg>"])


def _reach(values: Sequence[float]) -> float:
    """The end of an axis: the largest value, rounded up to a readable step."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    steps = (step * power for step in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10))
    return next((step for step in steps if step >= largest), largest)


def _across(value: float, reach: float) -> float:
    return round(_LEFT + _WIDTH * min(max(value / reach, 0.0), 1.0), 1)


def _up(value: float, reach: float) -> float:
    return round(_TOP + _HEIGHT * (1 - min(max(value / reach, 0.0), 1.0)), 1)


def _axes(reach_x: float, reach_y: float, x: str, y: str) -> list[str]:
    parts: list[str] = []
    bottom = _TOP + _HEIGHT
    for tick in range(_TICKS + 1):
        across, up = _across(tick, _TICKS), _up(tick, _TICKS)
        parts += [
            f'<line x1="{_LEFT}" y1="{up}" x2="{_LEFT + _WIDTH}" y2="{up}" stroke="{_GRID}"/>',
            _text(_LEFT - 8, up + 4, f"{reach_y * tick / _TICKS:.4g}", anchor="end"),
            _text(across, bottom + 18, f"{reach_x * tick / _TICKS:.4g}", anchor="middle"),
        ]
    parts.append(_text(_LEFT + _WIDTH / 2, bottom + 38, x, anchor="middle", colour=_DIM))
    parts.append(_text(_LEFT, _TOP - 14, y, colour=_DIM))
    return parts


def _mark(across: float) -> str:
    bottom = _TOP + _HEIGHT
    return (
        f'<line x1="{across}" y1="{_TOP}" x2="{across}" y2="{bottom}" stroke="{_MARK}" '
        'stroke-dasharray="3 4" stroke-opacity="0.6"/>'
    )


def _line(line: Line, place: int, reach_x: float, reach_y: float) -> list[str]:
    colour = _COLOURS[place % len(_COLOURS)]
    spots = [(_across(a, reach_x), _up(b, reach_y)) for a, b in line.points]
    joined = " ".join(f"{a},{b}" for a, b in spots)
    parts = [f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>']
    if line.dots:
        parts += [f'<circle cx="{a}" cy="{b}" r="3.5" fill="{colour}"/>' for a, b in spots]
    parts.append(_text(_LEFT + _WIDTH + 12, _TOP + 20 * place + 14, line.name, colour=colour))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = _INK) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'
