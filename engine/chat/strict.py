"""Reads JSON that can be written again: no number beyond all floats, no half characters.

Knows nothing of what the members mean.
"""

from __future__ import annotations

import json
import math
import re

_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # the escape of one half of a character; pairs have it too


def read_json(text: str) -> object:
    """The value of a JSON text; a half character in it, as a key too, becomes U+FFFD.

    Raises ValueError for what is not JSON, for NaN and infinities and for numbers that would become one;
    RecursionError for a text that nests too deeply.
    """
    value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    return _whole(value) if _HALF.search(text) else value


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:20]} is beyond the largest number")
    return value


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_whole(entry) for entry in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(entry) for key, entry in value.items()}
    return value
