"""The judge of the capacity gate on histories written by hand: one thing is wrong, and its claim says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import registry
from gates.capacity.drive import FILLED, PLANNED
from gates.harness import ceiling, history, room
from gates.harness.history import History
from gates.harness.rig import FURTHER_ENDED, SETTLED
from gates.harness.verdict import Measure
from gates.profile import Value
from gates.tests.capacity.driving import settings

Change = Callable[["Record"], None]
TOKENS = {"a": 1200, "b": 700, "f": 500}
LIVE = sum(TOKENS.values()) + 3 * 40  # each is shown with one turn more


class Record:
    """A good history; a test changes one thing of it before it is written."""

    def __init__(self) -> None:
        self.budget: float | None = 100.0 * LIVE
        self.own_budget = False
        self.starts = {
            cell: _answer(cell, "first", tokens=size, planned_tokens=size) for cell, size in TOKENS.items()
        }
        for one in self.starts.values():
            one |= {"first_token_s": 4.0, "seconds": 5.0}
        self.together = {cell: _answer(cell, "together", tokens=TOKENS[cell] + 20) for cell in "ab"}
        self.together_at = {"a": 0.0, "b": 0.5}  # seconds after each other that they are asked
        self.again = _answer("f", "again", tokens=540)
        self.shown = {cell: _answer(cell, "shown", tokens=TOKENS[cell] + 40) for cell in "ab"}
        self.in_storm = {cell: _answer(cell, "in_storm", tokens=TOKENS[cell] + 60) for cell in "ab"}
        self.refused: list[dict[str, Any]] = []  # tries of deep turns that were turned away in the storm
        self.storm: list[dict[str, Any]] = [_refusal(), _answer("s", "storm", tokens=200)]
        self.warm = {cell: _answer(cell, "warm", tokens=TOKENS[cell] + 80) for cell in "ab"}
        self.settled: float | None = 0.0
        self.left: list[str] = []
        self.now = 0.0

    def write(self, path: Path) -> None:
        """All of it, in the order in which a drive writes."""
        with History(path, clock=lambda: self.now) as record:
            record.note(room.STARTED)
            record.note(PLANNED, own_budget=self.own_budget)
            for cell in "ab":
                self._ask(record, "deep", self.starts[cell])
            for cell in "ab":
                self.now += self.together_at[cell]
                self._ask(record, "together", self.together[cell])
            self._ask(record, "filler", self.starts["f"])
            record.note(FILLED, budget_bytes=self.budget)
            self._ask(record, "filler_again", self.again)
            for cell in "ab":
                self._ask(record, "warm", self.shown[cell])
            record.note(ceiling.BEGAN)
            for one in self.storm:
                self._ask(record, ceiling.STORM, one)
            for one in [*self.refused, *self.in_storm.values()]:
                self._ask(record, "in_storm", one)
            record.note(ceiling.ENDED)
            self.now += 60
            for cell in "ab":
                self._ask(record, "warm", self.warm[cell])
            record.note(SETTLED, inflight=self.settled)
            record.note(FURTHER_ENDED, left=self.left)
            record.note(room.FINISHED)

    def _ask(self, record: History, what: str, fields: dict[str, Any]) -> None:
        kind = fields.pop("kind", "ok")
        names = ("cell", "key", "expected", "planned_tokens", "max_tokens")
        op = record.invoke(what, **{name: fields.pop(name) for name in names if name in fields})
        self.now += 0.01
        {"ok": record.ok, "fail": record.fail, "info": record.unknown}[kind](op, what, **fields)


def _answer(cell: str, key: str, *, tokens: int, **fields: Any) -> dict[str, Any]:
    code = str(100_000 + sum(map(ord, cell + key)))
    counts = {
        "prompt_tokens": tokens,
        "completion_tokens": 9,
        "cached_tokens": tokens - 30,
        "total_tokens": None,
    }
    times = {
        "first_token_s": 0.2,
        "seconds": 2.2,
        "longest_pause_s": [0.3, 0.4],
        "finish_reason": "stop",
    }
    said = {"text": f"code {code}", "expected": [code], "cell": cell, "key": key, "max_tokens": 64}
    return {**said, **counts, **times, **fields}


def _refusal(**fields: Any) -> dict[str, Any]:
    words = {"error": "Refused", "message": "HTTP 503: others hold all of it", "status": 503}
    return {"kind": "fail", "max_tokens": 64, "alive": True, "retry_after_s": 5.0, **words, **fields}


def _lost(one: dict[str, Any], **fields: Any) -> None:
    """Make a request that was answered one that was not."""
    for name in ("text", "prompt_tokens", "completion_tokens", "cached_tokens", "first_token_s", "seconds"):
        del one[name]
    one.update({"kind": "fail", "error": "CutShort", "message": "no end", "alive": True, **fields})


def judged(change: Change, folder: Path, **changes: Value) -> dict[str, Measure]:
    """The measures of a good history with this change."""
    record = Record()
    change(record)
    record.write(folder / "history.jsonl")
    gate = room.load(registry.find("capacity"))
    table = settings({"max_warm_ttft_ratio": 0.5, "wide_bytes_per_token": 350, **changes})
    said = room.judge(gate, history.read(folder / "history.jsonl"), table, None)
    return {measure.id.removeprefix("capacity."): measure for measure in said.measures}


def off(found: dict[str, Measure]) -> dict[str, str]:
    """The claims that do not hold, and how."""
    return {name: measure.verdict.value for name, measure in found.items() if measure.verdict != "pass"}


def leave(record: Record) -> None:
    del record


def test_a_good_history_passes_with_the_tokens_that_were_shown(tmp_path: Path) -> None:
    found = judged(leave, tmp_path)

    assert {} == off(found)
    assert 3.5 == found["live_ratio"].value  # 350 bytes wide, and a token for every 100 of the budget
    assert 3 == found["live_ratio"].n


@pytest.mark.parametrize(
    ("claims", "change"),
    [
        pytest.param({"live_ratio"}, lambda r: setattr(r, "budget", 400.0 * LIVE), id="wide_rows"),
        pytest.param(
            {"live_ratio", "cached_ratio"}, lambda r: r.again.update(cached_tokens=0), id="filler_gone"
        ),
        pytest.param(
            {"live_ratio", "warm_ttft_ratio"},
            lambda r: r.again.update(first_token_s=3.9),
            id="claimed_as_cached",
        ),
        pytest.param({"concurrent_ratio"}, lambda r: r.together_at.update(b=2.1), id="one_after_the_other"),
        pytest.param(
            {"concurrent_ratio"},
            lambda r: r.together["b"].update(longest_pause_s=[0.2, 2.2], seconds=4.2),
            id="one_after_the_other_behind_first_tokens_at_once",
        ),
        pytest.param(
            {"concurrent_ratio"},
            lambda r: [
                r.together["a"].update(longest_pause_s=[2.2, 4.2], seconds=4.2),
                r.together["b"].update(longest_pause_s=[0.2, 2.2], seconds=4.2),
            ],
            id="an_end_held_back_until_the_other_has_one",
        ),
        pytest.param({"recall_ratio"}, lambda r: r.warm["a"].update(text="code 1"), id="wrong_code"),
        pytest.param(
            {"cached_ratio"}, lambda r: r.warm["b"].update(cached_tokens=0), id="evicted_by_the_storm"
        ),
        pytest.param(
            {"warm_ttft_ratio"}, lambda r: r.warm["b"].update(first_token_s=3.0), id="slow_afterwards"
        ),
        pytest.param(
            {"ceiling_fault_count"}, lambda r: r.storm.append(_refusal(message="no")), id="no_words"
        ),
        pytest.param(
            {"unanswered_count", "recall_ratio"}, lambda r: _lost(r.in_storm["a"]), id="ended_for_the_storm"
        ),
        pytest.param({"leftover_count"}, lambda r: setattr(r, "settled", 1.0), id="still_open"),
        pytest.param({"leftover_count"}, lambda r: r.left.append("process 7"), id="left_a_process"),
        pytest.param(
            {"usage_error_ratio"}, lambda r: r.again.update(completion_tokens=70), id="beyond_the_limit"
        ),
        pytest.param({"length_error_ratio"}, lambda r: r.starts["f"].update(planned_tokens=450), id="length"),
    ],
)
def test_what_is_wrong_breaks_its_claim_and_no_other(
    claims: set[str], change: Change, tmp_path: Path
) -> None:
    assert dict.fromkeys(claims, "fail") == off(judged(change, tmp_path, min_live_ratio=3.4))


def test_an_answer_may_pause_while_the_text_of_the_other_is_read(tmp_path: Path) -> None:
    found = judged(lambda r: r.together["a"].update(longest_pause_s=[0.2, 0.9]), tmp_path)

    assert {} == off(found)
    assert pytest.approx(1.3 / 1.3, abs=0.05) == found["concurrent_ratio"].value


def test_a_server_that_tells_less_than_its_budget_gains_nothing(tmp_path: Path) -> None:
    found = judged(lambda r: setattr(r, "own_budget", True), tmp_path, cache_mib=1, min_live_ratio=1.8)

    assert {"live_ratio": "fail"} == off(found)
    assert "1.0 MiB of wide rows" in found["live_ratio"].note


@pytest.mark.parametrize(
    ("claims", "change", "changes"),
    [
        pytest.param({"live_ratio"}, lambda r: setattr(r, "budget", None), {}, id="no_budget"),
        pytest.param(
            {"cached_ratio"},
            lambda r: r.warm["b"].update(cached_tokens=None),
            {},
            id="a_turn_does_not_say",
        ),
        pytest.param({"ceiling_count"}, lambda r: r.storm.pop(0), {}, id="no_ceiling_met"),
        pytest.param(
            {"leftover_count"}, lambda r: setattr(r, "settled", None), {}, id="open_ones_not_counted"
        ),
        pytest.param(
            {"warm_ttft_ratio"},
            lambda r: [
                one.update(host_busy_ratio=0.5) for one in (r.again, *r.shown.values(), *r.warm.values())
            ],
            {"quiet_host_ratio": 0.1},
            id="busy_host",
        ),
        pytest.param(
            {"concurrent_ratio"},
            lambda r: r.together["a"].update(longest_pause_s=None),
            {},
            id="not_streamed",
        ),
    ],
)
def test_what_cannot_be_seen_never_passes(
    claims: set[str], change: Change, changes: dict[str, Value], tmp_path: Path
) -> None:
    assert dict.fromkeys(claims, "unknown") == off(judged(change, tmp_path, **changes))


def test_a_refusal_in_the_storm_is_excused_when_it_is_asked_again(tmp_path: Path) -> None:
    def refuse_first(record: Record) -> None:
        refused = dict(record.in_storm["a"])
        _lost(refused, **_refusal())
        record.refused.append(refused)

    assert {} == off(judged(refuse_first, tmp_path))
