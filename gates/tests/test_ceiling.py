"""What a full server may answer, and when being full is an excuse."""

from __future__ import annotations

from typing import Any

import pytest

from gates.harness import ceiling
from gates.harness.history import Event, Operation
from gates.harness.reply import DeadlinePassed, Refused

REFUSAL: dict[str, Any] = {
    "error": "Refused",
    "status": 503,
    "retry_after_s": 2.0,
    "message": "HTTP 503: 2 running requests hold 8 MiB",
}


def operation(kind: Any, *, begin: float = 10.0, end: float = 11.0, **fields: Any) -> Operation:
    return Operation(
        Event(1, begin, "invoke", 0, ceiling.STORM, {}), Event(1, end, kind, 0, ceiling.STORM, fields)
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param("", operation("ok", text="an answer"), id="answered"),
        pytest.param("", operation("fail", **REFUSAL), id="refused_with_all"),
        pytest.param("empty answer", operation("ok", text=" \n"), id="empty_200"),
        pytest.param(
            "Retry-After None", operation("fail", **{**REFUSAL, "retry_after_s": None}), id="no_time"
        ),
        pytest.param("Retry-After 0", operation("fail", **{**REFUSAL, "retry_after_s": 0.0}), id="no_wait"),
        pytest.param("'HTTP 503:'", operation("fail", **{**REFUSAL, "message": "HTTP 503:"}), id="no_words"),
        pytest.param(
            "HTTP 500", operation("fail", error="Refused", status=500, message="HTTP 500: oh"), id="500"
        ),
        pytest.param("DeadlinePassed", operation("info", error="DeadlinePassed", message="late"), id="stuck"),
        pytest.param("CutShort", operation("fail", error="CutShort", message="no end"), id="cut"),
    ],
)
def test_only_an_answer_or_a_clean_refusal_is_right(words: str, found: Operation) -> None:
    why = ceiling.wrong(found)

    assert words in why
    assert bool(words) is bool(why)


@pytest.mark.parametrize(
    ("expected", "begin", "end"),
    [
        pytest.param(True, 12.0, 13.0, id="within"),
        pytest.param(True, 5.0, 10.0, id="still_open_when_it_began"),
        pytest.param(False, 5.0, 9.9, id="over_before_it_began"),
        pytest.param(True, 25.0, 26.0, id="soon_after_it"),
        pytest.param(False, 25.1, 26.0, id="long_after_it"),
    ],
)
def test_a_storm_excuses_what_was_open_meanwhile(expected: bool, begin: float, end: float) -> None:
    one = operation("fail", begin=begin, end=end)

    assert expected is ceiling.during(one, [(10.0, 20.0)], after_s=5.0)


def test_a_client_waits_as_long_as_it_is_told_but_not_for_ever() -> None:
    waits = [Refused(503, "full", None, asked) for asked in (2.0, 60.0, None)]

    assert [2.0, ceiling.LONGEST_WAIT_S, 1.0] == [ceiling.wait_s(error) for error in waits]
    assert [0.0, 0.0] == [
        ceiling.wait_s(error) for error in (Refused(400, "no", None), DeadlinePassed("late"))
    ]
