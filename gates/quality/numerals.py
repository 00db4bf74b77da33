"""How a number is written in a reply: digits with separators, fractions, powers of ten, signs, currencies.

What is written whole is read whole; what cannot be read whole, such as a power or a date, is no number,
never its first digits.  Pure; knows no question set.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

_GROUP: Final = r"[,\u00a0\u2009\u202f ]\d{3}"
# Taken whole or not at all; no number has more groups, and an endless one is not begun at each of them.
_WHOLE: Final = rf"(?:\d{{1,3}}(?:{_GROUP}){{1,12}}(?!\d)|\d+)(?:\.\d+)?"
_DIGITS: Final = rf"(?>{_WHOLE}|\.\d+)"
_SIGN: Final = r"[-+\u2212]"
_DIVISOR: Final = rf"(?!0+(?:\.0*)?(?!\d|\.\d))(?>{_WHOLE})"  # nothing is divided by 0
# A number, then what makes it another one: e3, 1/2 behind a whole number, /2.
_SCALED: Final = rf"[eE](?P<exponent>{_SIGN}?\d{{1,2}})(?!\d)"
_MIXED: Final = rf"[ ]{{1,2}}(?P<part>\d+)[ ]?/[ ]?(?P<whole>{_DIVISOR})"
_RATIO: Final = rf"[ ]?/[ ]?(?P<divisor>{_DIVISOR})"
# What may not follow, or the digits would be a piece of something else: a longer number, 2nd, 2^3, 1/2/2020.
_MORE: Final = rf"\d|\.\d|[eE]{_SIGN}?\d|[ ]?\^|[\u00b2\u00b3\u00b9\u2070-\u2079]|[ ]?/[ ]?\d"
NUMBER: Final = re.compile(
    r"(?<![\w.^])(?<!\^[{\-\u2212])(?<!\d/)(?<!\d /)(?<!\d/ )(?<!\d / )"
    r"(?P<minus>[-\u2212])?[$€£¥₹]?(?P<inner>(?<=[$€£¥₹])[-\u2212])?"
    rf"(?P<digits>{_DIGITS})(?:{_SCALED}|{_MIXED}|{_RATIO})?(?!{_MORE}|(?:st|nd|rd|th)\b)"
)
_EXACT: Final = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MARKS: Final = re.compile(r"[*_`~]|\\(?=[$%])|\\[,!;]|\\text\s*|\\\(|\\\)|\\\[|\\\]")
_POWER: Final = re.compile(r"(?<=\d)\*\*(?=\d)")
_TIMES: Final = re.compile(r"(?<=\d)\*(?=\d)|(?<=[\d)] )\*(?= [\d($])|\\(?:times|cdot)(?![A-Za-z])")
_FRAC: Final = re.compile(r"(\d?)\\[dt]?frac\s*\{\s*([\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}")
_SIGNS_ONE: Final = re.compile(r"(\d?)([\u00bc-\u00be\u2150-\u215e])")
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_TEN: Final = re.compile(
    rf"(?P<times>(?<=\d)[ ]?[x\u00d7\u00b7][ ]?)?(?<![\d.,])10"
    rf"(?:[ ]?\^[ ]?(?P<brace>\{{)?(?P<plain>{_SIGN}?\d{{1,2}})(?(brace)\}})(?!\d)"
    r"|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,2})(?![⁰¹²³⁴⁵⁶⁷⁸⁹]))"
)


def plain(text: str) -> str:
    """The text without markup, and with one spelling each for products, fractions and powers of ten."""
    text = _TIMES.sub("\u00d7", _POWER.sub("^", text.replace("{,}", ","))).replace("\\div", "\u00f7")
    text = _FRAC.sub(lambda found: f"{found[1] and found[1] + ' '}{found[2]}/{found[3]}", text)
    text = _SIGNS_ONE.sub(_as_ratio, _MARKS.sub("", text))
    return _TEN.sub(_as_exponent, text)


def value(number: re.Match[str], text: str) -> Decimal:
    """What a match of `NUMBER` in the text is worth."""
    size = _decimal(number["digits"])
    if number["exponent"]:
        size = size.scaleb(int(number["exponent"].replace("\u2212", "-")), _EXACT)
    elif number["divisor"]:
        size = _EXACT.divide(size, _decimal(number["divisor"]))
    elif number["part"]:
        size = _EXACT.add(size, _EXACT.divide(Decimal(number["part"]), _decimal(number["whole"])))
    return -size if number["inner"] or (number["minus"] and not _between(number, text)) else size


def _decimal(digits: str) -> Decimal:
    """Digits without the separators between them."""
    return Decimal(re.sub(r"[^\d.]", "", digits))


def _between(number: re.Match[str], text: str) -> bool:
    """Whether the dash before a number stands between two numbers and so is no sign."""
    before = text[: number.start()].rstrip(" ")
    return before[-1:].isdigit() or before[-1:] in {")", "%"}


def _as_ratio(found: re.Match[str]) -> str:
    """One half as one character becomes 1/2."""
    ratio = unicodedata.normalize("NFKC", found[2]).replace("\u2044", "/")
    return f"{found[1] and found[1] + ' '}{ratio}"


def _as_exponent(found: re.Match[str]) -> str:
    """Times ten to the third becomes e3."""
    power = found["plain"] or found["raised"].translate(_RAISED)
    return f"{'' if found['times'] else '1'}e{power}"
