"""Tests of lines over time: every mark stands within the drawing, and no text becomes markup."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from hypothesis import given
from hypothesis import strategies as st

from gates.harness.lines import Line, chart

NUMBERS = st.floats(0, 1e12)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8), st.lists(NUMBERS, max_size=3))
def test_every_mark_stands_within_the_drawing(points: list[tuple[float, float]], marks: list[float]) -> None:
    root = Xml.fromstring(chart([Line("a", points, dots=True)], x="x", y="y", marks=marks, marked="here"))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    across = [float(one.get(name, "0")) for one in root.iter() for name in ("x1", "x2", "cx", "x")]
    down = [float(one.get(name, "0")) for one in root.iter() for name in ("y1", "y2", "cy", "y")]

    assert all(0 <= value <= width for value in across)
    assert all(0 <= value <= height for value in down)


def test_the_largest_value_is_highest_and_time_goes_to_the_right() -> None:
    root = Xml.fromstring(chart([Line("a", [(0, 1), (1, 4), (2, 2)], dots=True)], x="x", y="y"))
    dots = [(float(one.get("cx", "0")), float(one.get("cy", "0"))) for one in root.iter() if one.get("cx")]

    assert dots == sorted(dots)
    assert 1 == min(range(3), key=lambda place: dots[place][1])


def test_text_cannot_become_markup() -> None:
    assert "<b>" not in chart([Line("<b>", [(1, 1)])], x="<b>", y="<b>", marks=[1], marked="<b>")
