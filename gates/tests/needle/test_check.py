"""The judge of the needle gate on histories written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gates import profile
from gates.harness.baseline import Baseline
from gates.harness.history import Event
from gates.harness.stats import failure_bound
from gates.harness.verdict import Judgement, Measure, Verdict
from gates.needle.check import check
from gates.needle.sizing import pieces
from gates.needle.text import absent, follow_up, statement
from gates.needle.timing import COLD
from gates.profile import Settings

CODES = ("111222", "333444", "555666")
RATE = 1.25  # tokens a piece of the imagined server
QUESTION = pieces(follow_up("otter"))


TURNS = {"recall": ("recall", "order", "followup"), "absent": ("absent", "followup")}


class Record:
    """A history under construction."""

    def __init__(self, *asks: str) -> None:
        self.events: list[Event] = []
        self.note("planned_cells", cells={f"cell/{n}": list(TURNS[ask]) for n, ask in enumerate(asks)})

    def note(self, what: str, **fields: Any) -> None:
        """A remark of the harness."""
        self.events.append(Event(-1, 0.0, "info", -1, what, fields))

    def turn(self, what: str, number: int, text: str, **reply: Any) -> None:
        """One answered turn of cell `number`; `reply` overrides what an honest server reports."""
        place, expected, prompt = PLACES[what]
        asked = {
            "cell": f"cell/{number}",
            "attempt": 1,
            "turn": place,
            "tier_tokens": 1024,
            "depth": round(0.05 + 0.1 * (number % 10), 2),
            "expected": list(expected),
            "asked_keys": ["otter", "drum", "kite"][: len(expected) or 1],
            "others": [code for code in CODES if code not in expected],
            "pieces": round(prompt / RATE),
            "question_pieces": QUESTION * (1 + (what == "order")),
            "max_tokens": 256,
        }
        honest = {
            "text": text,
            "finish_reason": "stop",
            "prompt_tokens": prompt,
            "completion_tokens": tokens(text),
            "total_tokens": None,
            "cached_tokens": 1024 if place > 1 else 0,
            "first_token_s": 0.05 if place > 1 else 1.0,
            "fragments": tokens(text),
        }
        self.pair(what, asked, "ok", {**honest, **reply})

    def cell(self, number: int, **first: Any) -> None:
        """All turns of a recall cell, answered right; `first` overrides the reply of the first one."""
        self.turn("recall", number, statement("otter", CODES[0]), **first)
        self.turn("order", number, ROW)
        self.turn("followup", number, statement("drum", CODES[1]))

    def lost(self, what: str, number: int, *, alive: bool) -> None:
        """One turn without an answer."""
        asked = {
            "cell": f"cell/{number}",
            "turn": 1,
            "depth": 0.5,
            "expected": [CODES[0]],
            "asked_keys": ["otter"],
            "others": [],
        }
        self.pair(what, asked, "info", {"error": "Gone", "message": "lost", "alive": alive})

    def pair(self, what: str, asked: Mapping[str, Any], kind: Any, end: Mapping[str, Any]) -> None:
        """An invoke and its end."""
        op = len(self.events)
        self.events.append(Event(op, 0.0, "invoke", 0, what, asked))
        self.events.append(Event(op, 1.0, kind, 0, what, end))

    def judged(self, baseline: Baseline | None = None) -> Judgement:
        """The judgement by the limits of `ci`."""
        return check(self.events, limits(), baseline)


def tokens(text: str) -> int:
    """Tokens of the imagined server."""
    return round(RATE * pieces(text))


def limits() -> Settings:
    """The needle table of `ci`."""
    return profile.load("ci").table("needle")


def measure(judgement: Judgement, name: str) -> Measure:
    """One measure by the part of its id after the dot."""
    return next(m for m in judgement.measures if m.id == f"needle.{name}")


ROW = " ".join(statement(key, code) for key, code in zip(("otter", "drum", "kite"), CODES, strict=True))
SAID = tokens(statement("otter", CODES[0]))
# Of each kind of turn: its place in a conversation, the codes it must name, its prompt tokens.
PLACES = {
    "recall": (1, CODES[:1], 1024),
    COLD: (1, CODES[:1], 1024),
    "absent": (1, (), 1024),
    "order": (2, CODES, 1024 + SAID + 26),
    "followup": (3, CODES[1:2], 1024 + SAID + 26 + tokens(ROW) + 14),
}


def honest(recall: int = 10) -> Record:
    """A record in which all is well."""
    record = Record(*["recall"] * recall, "absent")
    for number in range(recall):
        record.cell(number)
    record.turn("absent", recall, absent("otter"))
    record.turn("followup", recall, statement("drum", CODES[1]))
    return record


def test_a_right_history_holds_every_claim_but_the_bound_of_few_cells() -> None:
    judgement = honest(30).judged()

    assert {} == {m.id: m.note for m in judgement.measures if m.verdict is not Verdict.PASS}
    assert () == judgement.findings


def test_the_bound_says_what_a_few_cells_can_show() -> None:
    bound = measure(honest(8).judged(), "failure_bound_ratio")

    assert bound.value == pytest.approx(1 - 0.05 ** (1 / 9))
    assert Verdict.FAIL is bound.verdict


def test_one_wrong_code_is_found_with_what_was_wanted_and_what_was_said() -> None:
    record = Record(*["recall"] * 2)
    record.turn("recall", 0, statement("otter", CODES[0]))
    record.turn("recall", 1, "The access code for the otter is 111223.")

    judgement = record.judged()

    assert measure(judgement, "recall_ratio").value == pytest.approx(0.5)
    found = next(finding for finding in judgement.findings if finding.measure == "needle.recall_ratio")
    assert "111222 for the otter" == found.expected
    assert "an answer without 111222" == found.found
    assert "The access code for the otter is 111223." == found.detail


def test_a_decoy_is_told_from_a_wrong_code() -> None:
    record = Record("recall")
    record.turn("recall", 0, statement("kite", CODES[2]))
    record.turn("followup", 0, statement("drum", CODES[1]))

    judgement = record.judged()

    assert measure(judgement, "decoy_ratio").value == pytest.approx(2 / 3)  # one planned turn is missing
    assert 0.0 == measure(judgement, "recall_ratio").value


def test_a_code_of_another_cell_is_cross_talk() -> None:
    record = Record("recall", "recall")
    record.turn("recall", 0, statement("otter", CODES[0]))
    record.turn("recall", 1, "It is 111222 or 909808.")
    first = record.events[1]
    record.events[1] = replace(first, fields={**first.fields, "expected": ["909808"], "others": []})
    record.events[2] = replace(record.events[2], fields={**record.events[2].fields, "text": "It is 909808."})

    judgement = record.judged()

    assert 1 == measure(judgement, "crosstalk_count").value
    assert any("909808" in finding.found for finding in judgement.findings)


def test_a_living_server_that_does_not_answer_breaks_a_claim() -> None:
    record = honest(4)
    record.lost("recall", 0, alive=True)

    found = measure(record.judged(), "unanswered_count")

    assert (Verdict.FAIL, "the first: lost") == (found.verdict, found.note)


def test_a_dead_server_breaks_none() -> None:
    record = Record(*["recall"] * 30)
    record.turn("recall", 0, statement("otter", CODES[0]))
    record.lost("recall", 1, alive=False)

    measures = record.judged().measures
    verdicts = {m.id: m.verdict for m in measures}

    assert Verdict.FAIL not in verdicts.values()
    assert Verdict.UNKNOWN is verdicts["needle.recall_ratio"]
    assert Verdict.UNKNOWN is verdicts["needle.unanswered_count"]
    assert [] == [m.id for m in measures if m.verdict is Verdict.UNKNOWN and not m.note]


def test_what_is_broken_for_certain_fails_although_cells_are_missing() -> None:
    record = Record(*["recall"] * 4)
    record.turn("recall", 0, "I do not know.")
    record.lost("recall", 1, alive=False)

    recall = measure(record.judged(), "recall_ratio")

    assert recall.value == pytest.approx(0.75)  # with every missing cell right
    assert Verdict.FAIL is recall.verdict


def test_a_history_without_a_plan_passes_nothing() -> None:
    record = honest()
    record.events.pop(0)

    assert Verdict.PASS not in {m.verdict for m in record.judged().measures}


def test_a_cell_that_was_asked_again_is_right_only_if_each_attempt_was() -> None:
    record = Record("recall")
    record.turn("recall", 0, "I do not know.")
    record.turn("recall", 0, statement("otter", CODES[0]))

    assert 0.0 == measure(record.judged(), "recall_ratio").value


def test_length_and_cache_are_those_of_the_last_attempt() -> None:
    record = Record("recall")
    record.turn("recall", 0, "I do not know.", prompt_tokens=900)
    record.cell(0)

    assert 0.0 == measure(record.judged(), "length_error_ratio").value


def test_a_wrong_length_that_was_to_be_asked_again_fails_nothing_when_the_record_stops() -> None:
    record = Record("recall", "recall")
    record.cell(0)
    record.turn("recall", 1, statement("otter", CODES[0]), prompt_tokens=900)
    assert Verdict.UNKNOWN is measure(record.judged(), "length_error_ratio").verdict

    record.turn("order", 1, ROW)
    assert Verdict.FAIL is measure(record.judged(), "length_error_ratio").verdict


def test_counts_are_pooled_with_those_of_the_baseline() -> None:
    baseline = Baseline({"needle.pooled_cells_count": 100.0, "needle.pooled_failures_count": 1.0}, {})

    judgement = honest(8).judged(baseline)

    assert 109 == measure(judgement, "pooled_cells_count").value
    assert 1 == measure(judgement, "pooled_failures_count").value
    assert measure(judgement, "pooled_bound_ratio").value == pytest.approx(failure_bound(1, 109))


@pytest.mark.parametrize(
    ("reply", "broken"),
    [
        pytest.param({"cached_tokens": 900}, "cold_cached_ratio", id="a_cold_cell_from_the_cache"),
        pytest.param({"prompt_tokens": 980, "total_tokens": None}, "length_error_ratio", id="another_length"),
        pytest.param({"finish_reason": "length", "completion_tokens": 256}, "truncated_count", id="cut"),
        pytest.param({"finish_reason": "length"}, "usage_error_ratio", id="cut_before_its_limit"),
        pytest.param({"completion_tokens": 26, "total_tokens": None}, "usage_error_ratio", id="doubled"),
        pytest.param(
            {"completion_tokens": 5, "total_tokens": None}, "usage_error_ratio", id="fewer_than_fragments"
        ),
        pytest.param(
            {"completion_tokens": 300, "total_tokens": None}, "usage_error_ratio", id="more_than_allowed"
        ),
        pytest.param({"token_ids": [1] * 20}, "usage_error_ratio", id="other_token_ids"),
        pytest.param({"prompt_tokens": None}, "usage_error_ratio", id="no_prompt_tokens"),
        pytest.param({"prompt_tokens": 512, "total_tokens": None}, "usage_error_ratio", id="half_the_prompt"),
        pytest.param({"cached_tokens": 2000}, "usage_error_ratio", id="more_cached_than_asked"),
        pytest.param({"total_tokens": 7}, "usage_error_ratio", id="a_total_that_is_no_sum"),
    ],
)
def test_one_reply_that_cannot_be_true_breaks_its_claim(reply: dict[str, Any], broken: str) -> None:
    record = honest(30)
    for number in (3, 14):
        record.turn("recall", number, statement("otter", CODES[0]), **reply)

    assert Verdict.FAIL is measure(record.judged(), broken).verdict


def test_second_turns_that_are_computed_again_break_two_claims() -> None:
    record = Record("recall")
    record.turn("recall", 0, statement("otter", CODES[0]))
    record.turn("followup", 0, statement("drum", CODES[1]), cached_tokens=0, first_token_s=1.0)

    judgement = record.judged()

    assert Verdict.FAIL is measure(judgement, "followup_cached_ratio").verdict
    assert Verdict.FAIL is measure(judgement, "followup_ttft_ratio").verdict


def test_a_page_of_the_prefix_is_forgiven() -> None:
    record = Record("recall")
    record.turn("recall", 0, statement("otter", CODES[0]))
    record.turn("order", 0, ROW)
    record.turn("followup", 0, statement("drum", CODES[1]), cached_tokens=1024 - 128)

    assert 1.0 == measure(record.judged(), "followup_cached_ratio").value


def test_a_server_that_reports_no_cached_tokens_leaves_the_cache_unknown() -> None:
    record = Record("recall")
    record.turn("recall", 0, statement("otter", CODES[0]), cached_tokens=None)
    record.turn("followup", 0, statement("drum", CODES[1]), cached_tokens=None)

    found = [measure(record.judged(), name) for name in ("cold_cached_ratio", "followup_cached_ratio")]

    assert {Verdict.UNKNOWN} == {one.verdict for one in found}
    assert {"no reply says how many of its prompt's tokens came from a cache"} == {one.note for one in found}


@pytest.mark.parametrize(
    ("claim", "what", "bad"),
    [
        pytest.param("followup_cached_ratio", "followup", 0, id="followup"),
        pytest.param("cold_cached_ratio", "recall", 900, id="cold"),
    ],
)
def test_one_turn_that_does_not_say_leaves_the_cache_unknown_unless_another_is_bad(
    claim: str, what: str, bad: int
) -> None:
    record = honest(30)
    record.turn(what, 3, "no matter", cached_tokens=None)
    silent = measure(record.judged(), claim)
    record.turn(what, 4, "no matter", cached_tokens=bad)
    also_bad = measure(record.judged(), claim)

    assert (Verdict.UNKNOWN, True) == (silent.verdict, silent.note.startswith("1 of "))
    assert Verdict.FAIL is also_bad.verdict


def test_the_table_has_a_row_for_each_turn_with_its_state() -> None:
    record = honest(2)
    record.turn("recall", 0, "no", finish_reason="length")
    record.lost("recall", 1, alive=True)

    table = record.judged().tables[0]
    states = [row[table.header.index("state")] for row in table.rows]

    assert ["right"] * 8 + ["truncated", "unanswered"] == states


def asked_slowly(*slow: int, again: float | None = None, **reply: Any) -> Measure:
    """The spread of thirty cells of a second each, the `slow` ones with this reply, and later this time."""
    record = Record(*["recall"] * 30)
    for number in range(30):
        record.cell(number, **(reply if number in slow else {}))
        if number in slow and again:
            record.turn(COLD, number, "The", first_token_s=again)
    return measure(record.judged(), "ttft_spread_ratio")


def test_two_slow_cells_are_no_flat_first_token() -> None:
    assert Verdict.PASS is asked_slowly(3, first_token_s=1.5).verdict  # the outermost are left out
    assert Verdict.FAIL is asked_slowly(3, 14, first_token_s=1.5).verdict


def test_the_median_of_the_askings_is_the_time_of_a_cell() -> None:
    assert Verdict.PASS is asked_slowly(3, 14, again=1.0, first_token_s=1.5).verdict
    assert Verdict.FAIL is asked_slowly(3, 14, again=1.4, first_token_s=1.5).verdict


def test_a_host_that_is_slow_for_a_while_fails_no_flat_server() -> None:
    assert Verdict.PASS is asked_slowly(*range(11, 19), first_token_s=1.5).verdict


def test_cells_of_a_busy_host_are_not_timed() -> None:
    assert Verdict.PASS is asked_slowly(3, 14, first_token_s=9.0, host_busy_ratio=0.8).verdict


def test_a_host_that_was_busy_most_of_the_time_leaves_flatness_unknown() -> None:
    spread = asked_slowly(*range(20), host_busy_ratio=0.8)

    assert Verdict.UNKNOWN is spread.verdict
    assert spread.note.startswith("the host was busy with other work during 20 of 30 cells: ask again")


def timed(*seconds: float) -> Measure:
    """The slope of recall cells at rising depths that took these times."""
    record = Record(*["recall"] * len(seconds))
    for number in sorted(range(len(seconds)), key=lambda n: 7 * n % 10):  # no order of depth, as in plans
        record.cell(number, first_token_s=seconds[number])
    return measure(record.judged(), "ttft_slope_ratio")


def test_a_slope_that_noise_could_hide_is_unknown() -> None:
    noisy = timed(1.0, 1.9, 1.1, 2.0, 1.0, 1.8, 1.2, 2.1, 0.9, 1.7)

    assert (Verdict.UNKNOWN, None) == (noisy.verdict, noisy.value)
    assert "too wide to tell" in noisy.note
    assert noisy.estimate is not None
    assert "" == noisy.judged


def test_a_slope_that_noise_cannot_hide_fails_however_wide_its_interval_is() -> None:
    steep = timed(1.0, 1.3, 1.1, 2.0, 2.3, 2.1, 3.0, 3.4, 3.9, 3.6)

    assert Verdict.FAIL is steep.verdict
    assert steep.interval is not None
    assert steep.estimate is not None
    assert steep.value is not None
    assert steep.interval[0] == steep.value < steep.estimate < steep.interval[1]
    assert "interval's distance from 0" == steep.judged


def test_equal_times_have_no_slope() -> None:
    assert Verdict.PASS is timed(*[1.0] * 10).verdict
