"""Tests of the forest plot: everything stands within the drawing, and no text becomes markup."""

from __future__ import annotations

import math
from xml.etree import ElementTree as Xml

from hypothesis import given
from hypothesis import strategies as st

from gates.harness import plot
from gates.harness.plot import Bar

SHARES = st.floats(-1, 1)


def numbers(svg: str, name: str) -> list[float]:
    return [float(element.get(name, "0")) for element in Xml.fromstring(svg).iter() if element.get(name)]


@given(st.lists(st.tuples(SHARES, SHARES, SHARES, SHARES), max_size=5))
def test_every_mark_stands_within_the_drawing(rows: list[tuple[float, float, float, float]]) -> None:
    svg = plot.forest([Bar("a", "pass", *row, "text") for row in rows], axis="change")
    width = float(Xml.fromstring(svg).get("width", "0"))

    assert all(0 <= x <= width for name in ("x1", "x2", "cx", "x") for x in numbers(svg, name))


def test_an_interval_without_an_end_is_drawn_to_the_border() -> None:
    svg = plot.forest([Bar("a", "unknown", 0.0, -math.inf, 0.01, -0.02, "text")], axis="change")

    assert min(numbers(svg, "x1")) == plot._LABELS


def test_text_cannot_become_markup() -> None:
    svg = plot.forest([Bar("<script>", "fail", 0, 0, 0, 0, "a & b")], axis="<b>")

    assert "<script>" not in svg
    assert ["<script>", "a & b"] == [
        e.text for e in Xml.fromstring(svg).iter() if e.text in ("<script>", "a & b")
    ]


def test_the_same_numbers_give_the_same_bytes() -> None:
    bars = [Bar("gsm8k fast", "pass", -0.002, -0.007, 0.003, -0.01, "pass")]

    assert plot.forest(bars, axis="change") == plot.forest(list(bars), axis="change")
    assert "-1 %" in plot.forest(bars, axis="change")
