"""What a JSON value of a record must look like, and in words the first place where one does not.

A shape is a function: a value and its name in, the fault in words out, empty for a value that fits.
Knows no record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

Shape = Callable[[Any, str], str]

SHOWN = 60  # characters of a wrong value that the words repeat
MOST_DIGITS = 300  # of a whole number; no float holds more than 308, and no count has thirty


def parsed(text: bytes) -> Any:
    """The value of a JSON text; ValueError for anything else, also for NaN and numbers beyond all floats:
    what is made from a record could not hold it."""
    return json.loads(text, parse_constant=_refused, parse_float=_finite)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:SHOWN]} is beyond all floats")
    return number


def parsed_whole(digits: str) -> int:
    """A whole number of a JSON text (its `parse_int`); ValueError for one that counts nothing real."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits, at most {MOST_DIGITS} are read")
    return int(digits)


def text(value: Any, name: str) -> str:
    """A text."""
    return "" if isinstance(value, str) else _wrong(value, name, "a text")


def switch(value: Any, name: str) -> str:
    """True or false."""
    return "" if isinstance(value, bool) else _wrong(value, name, "true or false")


def number(value: Any, name: str) -> str:
    """A number that a float can hold."""
    try:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        fits = False
    return "" if fits else _wrong(value, name, "a number")


def whole(value: Any, name: str) -> str:
    """A whole number that a float can hold."""
    return _wrong(value, name, "a whole number") if isinstance(value, float) else number(value, name)


def time(value: Any, name: str) -> str:
    """A point in time in ISO 8601."""
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return _wrong(value, name, "a time such as 2026-11-30T09:00:00+00:00")
    return ""


def anything(value: Any, name: str) -> str:
    """Whatever it is."""
    del value, name
    return ""


def maybe(shape: Shape) -> Shape:
    """What this shape allows, or null."""
    return lambda value, name: "" if value is None else shape(value, name)


def one_of(*allowed: str) -> Shape:
    """One of these texts."""
    words = ", ".join(allowed)
    return lambda value, name: (
        "" if isinstance(value, str) and value in allowed else _wrong(value, name, words)
    )


def rows(shape: Shape, *, least: int = 0) -> Shape:
    """A list with at least so many values of this shape."""

    def fault(value: Any, name: str) -> str:
        if not isinstance(value, list) or len(value) < least:
            return _wrong(value, name, "a list" if not least else f"a list of at least {least}")
        return next(filter(None, (shape(row, f"{name}[{place}]") for place, row in enumerate(value))), "")

    return fault


def table(shape: Shape) -> Shape:
    """An object whose values all have this shape."""

    def fault(value: Any, name: str) -> str:
        if not isinstance(value, dict):
            return _wrong(value, name, "an object")
        return next(filter(None, (shape(part, f"{name}.{key}") for key, part in value.items())), "")

    return fault


def fields(wanted: Mapping[str, Shape], **optional: Shape) -> Shape:
    """An object with all `wanted` members, perhaps `optional` ones, and any others."""

    def fault(value: Any, name: str) -> str:
        if not isinstance(value, dict):
            return _wrong(value, name, "an object")
        absent = [key for key in wanted if key not in value]
        if absent:
            return f"{name} lacks {', '.join(absent)}"
        known = {**wanted, **optional}
        parts = (known[key](part, f"{name}.{key}") for key, part in value.items() if key in known)
        return next(filter(None, parts), "")

    return fault


def _wrong(value: Any, name: str, allowed: str) -> str:
    try:
        found = repr(value)
    except ValueError:  # a whole number with more digits than Python writes
        found = "a whole number of thousands of digits"
    shown = found if len(found) <= SHOWN else f"{found[:SHOWN]}..."
    return f"{name} is {shown}, allowed: {allowed}"
