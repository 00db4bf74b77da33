"""The 28 cases of public reports on wrong graders: each has its test, and those of no set stand here.

Numbers G1-G6 in `test_gsm8k.py`, letters M1-M4 in `test_mmlu.py`, code C1-C7 in `test_programs.py` and
`test_sandbox.py`, instructions I1-I5 in `test_ifeval.py`, the runner R1-R3 in `test_grading.py` and here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gates.errors import CheckError
from gates.harness import paired
from gates.harness.dialect import StreamedReply
from gates.harness.paired import Pairs
from gates.harness.sse import ServerEvent
from gates.needle.grade import grade_codes
from gates.quality.grading import Grade, Graded, completion_tokens

HERE = Path(__file__).parent
CASES = [
    *(f"G{n}" for n in range(1, 7)),
    *(f"M{n}" for n in range(1, 5)),
    *(f"C{n}" for n in range(1, 8)),
    *(f"I{n}" for n in range(1, 6)),
    *(f"R{n}" for n in range(1, 4)),
    "N1",
    "T1",
    "P1",
]


def test_every_case_of_the_public_reports_has_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
    named = {name for text in texts for name in re.findall(r'(?:id="|"""|and )([GMCIRNTP]\d)(?!\d)', text)}

    assert 28 == len(CASES)
    assert set() == set(CASES) - named


def test_an_item_without_a_reply_on_either_side_is_in_no_pair() -> None:
    """R2."""
    baseline = [Graded("1", Grade("pass")), Graded("2", Grade("infra")), Graded("3", Grade("fail"))]
    candidate = [Graded("1", Grade("pass")), Graded("2", Grade("pass")), Graded("3", Grade("fail"))]
    found = paired.pair(
        {result.item: result.grade.right for result in baseline},
        {result.item: result.grade.right for result in candidate},
    )

    assert Pairs(n=2, worse=0, better=0, dropped=1) == found


@pytest.mark.parametrize(
    ("text", "right"),
    [
        pytest.param("It is 48,210.", True, id="N1"),
        pytest.param("148210", False, id="N1_part_of_a_longer_number"),
        pytest.param("48210-7", False, id="N1_part_of_a_compound"),
        pytest.param("The code was 48210, as the text says.", True, id="N1_other_wording"),
        pytest.param("", False, id="N1_empty"),
    ],
)
def test_a_needle_is_its_value_and_not_its_wording(text: str, right: bool) -> None:
    assert right == grade_codes(text, ["48210"], []).right


def test_results_of_different_versions_of_a_tool_are_not_compared() -> None:
    """T1."""
    with pytest.raises(CheckError, match="cannot be compared"):
        paired.comparable(
            {"tool_eval_bench_version": "2.8.0", "config_fingerprint": "a"},
            {"tool_eval_bench_version": "3.0.0", "config_fingerprint": "a"},
        )


@pytest.mark.parametrize(
    ("usage", "ids", "tokens"),
    [
        pytest.param(2, [], 2, id="P1"),
        pytest.param(2, [5, 6, 7], 2, id="P1_usage_before_ids"),
        pytest.param(None, [5, 6], 2, id="P1_ids"),
        pytest.param(None, [], None, id="P1_not_measurable"),
    ],
)
def test_fragments_are_never_counted_as_tokens(usage: int | None, ids: list[int], tokens: int | None) -> None:
    stream = StreamedReply()
    for fragment in ("Hel", "lo", " world"):
        stream.take(ServerEvent(json.dumps({"choices": [{"delta": {"content": fragment}}]})), 0.0)
    last: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop", "token_ids": ids}]}
    stream.take(
        ServerEvent(json.dumps(last | ({"usage": {"completion_tokens": usage}} if usage else {}))), 0.0
    )
    stream.take(ServerEvent("[DONE]"), 0.0)

    assert tokens == completion_tokens(stream.finish(1.0))
