"""The same question with other numbers or another name, so that its answer must be another text.

Knows the wording of the sets only as far as numbers and function names go; pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_NUMBER: Final = re.compile(r"(?<![\d.,])\d{1,3}(?![\d.,]*\d)")
_DEFINED: Final = re.compile(r"^def (\w+)\(", re.MULTILINE)
_CALLED: Final = re.compile(r"^assert \W*(\w+)\(", re.MULTILINE)


def other_numbers(prompt: str) -> str:
    """Every whole number of up to three digits one higher."""
    return _NUMBER.sub(lambda found: str(int(found.group()) + 1), prompt)


def other_name(prompt: str) -> str:
    """Another name for the function that is asked for; the same prompt where none is named."""
    names = _DEFINED.findall(prompt) or _CALLED.findall(prompt)
    return re.sub(rf"\b{names[-1]}\b", f"{names[-1]}_again", prompt) if names else prompt


# Sets whose replies are a letter or free text are not here: there, the same reply proves nothing.
OTHERWISE: Final[Mapping[str, Callable[[str], str]]] = {
    "gsm8k": other_numbers,
    "humaneval": other_name,
    "humaneval_plus": other_name,
    "mbpp": other_name,
    "mbpp_sanitized": other_name,
    "mini_arithmetic": other_numbers,
    "mini_two_steps": other_numbers,
    "mini_docstring": other_numbers,
    "mini_asserts": other_numbers,
}
