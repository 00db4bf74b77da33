"""Numbers as replies write them: read whole, or not at all, and never by their first digits."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.quality import gsm8k

CUES = ("#### ", "The answer is ", "It makes ", "\\boxed{")


@pytest.mark.parametrize("cue", CUES)
@pytest.mark.parametrize(
    "text",
    [
        *("1e3", "1E+3", "$1.0e3", "**1e3**", "10^3", "10^{3}", "10**3", "1 x 10^3", "1\u00d710\u00b3"),
        *("0.5 * 2e3 = 1e3", "1 \\times 10^{3}", "\\(1 \\cdot 10^3\\)", "1000000e\u22123", "1,000e0"),
    ],
)
def test_a_power_of_ten_is_read_whole(cue: str, text: str) -> None:
    assert Decimal(1000) == gsm8k.extract(_said(cue, text))


@pytest.mark.parametrize("cue", CUES)
@pytest.mark.parametrize(
    "text",
    [
        *("5/2", "5 / 2", "$5/2", "2 1/2 hours", "2\u00bd", "**5/2**.", "\\frac{5}{2}", "10/4 cups"),
        *("2\\frac{1}{2}", "\\dfrac{5}{2}", "2.5/1", "25e-1", "5/2 = 2.5", "1\u00be + 3/4 = 5/2"),
    ],
)
def test_a_fraction_is_read_whole(cue: str, text: str) -> None:
    assert Decimal("2.5") == gsm8k.extract(_said(cue, text))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### -5/2", "-2.5"),
        ("#### -2 1/2", "-2.5"),
        ("The answer is 100 / 4 / 5 = 5", "5"),
        ("#### 100/4/5 = 5", "5"),
        ("The answer is 2*9 = 18", "18"),
        ("The answer is $2 \\times 9 = 18$", "18"),
        ("The answer is 2^3 = 8", "8"),
        ("It is 18 cm^2 and 18 m\u00b3", "18"),
        ("It is 18[^1]", "18"),
        ("It is 18 on 1/2/2020", "18"),
        ("It is 18 of version 1.2.3", "18"),
        ("#### 1200 300 of them new", "1200"),
        ("The answer is 12,000/1,200 = 10", "10"),
        ("#### $12,000 / 1,200", "10"),
        ("\\boxed{\\frac{12{,}000}{1{,}200}}", "10"),
        ("#### 1 1/1,000", "1.001"),
        ("#### 5/0.05", "100"),
        ("The answer is 2\\times9 = 18", "18"),
        ("#### 3\\cdot10^2", "300"),
    ],
)
def test_what_stands_around_a_number_is_no_part_of_it(text: str, number: str) -> None:
    assert Decimal(number) == gsm8k.extract(text)


@pytest.mark.parametrize(
    "text",
    [
        *("1e999999999", "1,234e100", "2^3", "2\u00b3", "5/0", "5 / 0.0", "1/2/3", "3.1.4", "7^-2"),
        *("10^{999}", "x^{2}", "5/0.", "1 /2/3", "1/ 2/3"),
    ],
)
def test_what_cannot_be_read_whole_is_no_number(text: str) -> None:
    assert all(gsm8k.extract(_said(cue, text)) is None for cue in CUES)


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.sampled_from(["", ",", "\u202f"]), st.integers(-9, 9))
def test_every_spelling_keeps_its_power_and_its_divisor(value: int, separator: str, power: int) -> None:
    spelled = ("-" if value < 0 else "") + f"{abs(value):,}".replace(",", separator)

    assert Decimal(value).scaleb(power) == gsm8k.extract(f"So the answer is {spelled}e{power}.")
    assert Decimal(value) / 8 == gsm8k.extract(f"So the answer is {spelled}/8.")
    if value:
        assert Decimal(8) == gsm8k.extract(f"So the answer is {8 * abs(value)}/{spelled.lstrip('-')}.")


@pytest.mark.parametrize("piece", ["1/", "1 / ", "1 111", "10^", "1e", "1 1/", "\\frac{1", "2*", "1."])
def test_an_endless_repetition_is_read_to_its_end(piece: str) -> None:
    assert Decimal(29) == gsm8k.extract(piece * (50_000 // len(piece)) + "\n\n29")


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="0123456789.,-$/^eE x*\n#\u00b3\u00bd{}\u202f", max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    found = gsm8k.extract(text)

    assert found is None or found.is_finite()


def _said(cue: str, text: str) -> str:
    return cue + text + ("}" if cue.endswith("{") else "")
