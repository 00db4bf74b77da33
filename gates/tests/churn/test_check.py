"""The judge of the churn gate on histories written by hand: one thing is wrong, and its claim says so."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import registry
from gates.churn.drive import BEGAN, ENDED, PLANNED
from gates.churn.plan import LEAVES
from gates.churn.watch import SEEN
from gates.harness import ceiling, history, room
from gates.harness.history import History
from gates.harness.rig import FURTHER_ENDED, SETTLED
from gates.harness.verdict import Measure
from gates.profile import Value
from gates.tests.churn.driving import settings

ROUNDS, MIB = 6, 2**20
Change = Callable[["Record"], None]


class Record:
    """A good history; a test changes one thing of it before it is written."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rounds: list[dict[str, Any]] = [
            _answer(f"code {700000 + n}", [f"{700000 + n}"], cell="deep", key=f"key{n}", round=n)
            | {"prompt_tokens": 1000 + 30 * n, "cached_tokens": 960 + 30 * n, "first_token_s": 0.2}
            for n in range(ROUNDS)
        ]
        self.cold = _answer("code 600000", ["600000"], cell="cold", key="c") | {"first_token_s": 4.0}
        self.short = _answer("code 500000", ["500000"], cell="short", key="s")
        self.twin = _answer("code 500000", ["500000"], cell="short", key="s") | {"cached_tokens": 0}
        self.before = [
            _answer(f"code {400000 + n}", [f"{400000 + n}"], cell=f"sample{n}", key="s") for n in range(3)
        ]
        self.after = [dict(one) for one in self.before]
        self.storm: list[dict[str, Any]] = [
            _refusal(),
            _answer("code 300000", ["300000"], cell="storm", key="s"),
        ]
        self.leaves = list(LEAVES)
        self.malformed = [{"status": 400}, {"status": 422}]
        self.late: list[tuple[str, str, dict[str, Any]]] = []  # what, kind, fields: long after the storm
        self.held: list[float | None] = [500.0 * MIB] * 60
        self.counted: dict[str, Any] = {"pinned_evictions": 0.0}
        self.settled: float | None = 0.0
        self.left: list[str] = []

    def write(self, path: Path) -> None:
        """All of it, in the order in which a drive writes."""
        with History(path, clock=lambda: self.now) as record:
            record.note(room.STARTED)
            record.note(PLANNED, rounds=ROUNDS)
            first = _answer("code 999999", ["999999"], cell="deep", key="first")
            self._ask(record, "deep", "ok", first | {"prompt_tokens": 970, "planned_tokens": 970})
            for one in self.before:
                self._ask(record, "sample_before", "ok", one)
            record.note(BEGAN)
            record.note(ceiling.BEGAN)
            for one in self.storm:
                self._ask(record, ceiling.STORM, one.pop("kind", "ok"), one)
            record.note(ceiling.ENDED)
            for one in self.rounds:
                self._ask(record, "round", one.pop("kind", "ok"), one)
            self._ask(record, "cold", "ok", self.cold)
            self._ask(record, "short", "ok", self.short)
            self._ask(record, "twin", "ok", self.twin)
            for kind in self.leaves:
                self._ask(record, kind, "ok", {})
            for one in self.malformed:
                self._ask(record, "malformed", "ok", one)
            for held in self.held:
                self.now += 2
                record.note(SEEN, anon_bytes=held, swap_bytes=0, **self.counted)
            record.note(ENDED)
            for what, kind, fields in self.late:
                self._ask(record, what, kind, fields)
            for one in self.after:
                self._ask(record, "sample_after", "ok", one)
            record.note(SETTLED, inflight=self.settled)
            record.note(FURTHER_ENDED, left=self.left)
            record.note(room.FINISHED)

    def _ask(self, record: History, what: str, kind: str, fields: dict[str, Any]) -> None:
        asked = {
            name: fields.pop(name)
            for name in ("cell", "key", "expected", "round", "max_tokens")
            if name in fields
        }
        op = record.invoke(what, **asked)
        self.now += 0.01
        {"ok": record.ok, "fail": record.fail, "info": record.unknown}[kind](op, what, **fields)


def _answer(text: str, expected: list[str], **fields: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 0, "total_tokens": None}
    return {"text": text, "expected": expected, "max_tokens": 64, "finish_reason": "stop", **counts, **fields}


def _refusal(**fields: Any) -> dict[str, Any]:
    words = {"error": "Refused", "message": "HTTP 503: others hold all of it", "status": 503}
    return {"kind": "fail", "max_tokens": 64, "alive": True, "retry_after_s": 5.0, **words, **fields}


def judged(change: Change, folder: Path, **changes: Value) -> dict[str, Measure]:
    """The measures of a good history with this change."""
    record = Record()
    change(record)
    record.write(folder / "history.jsonl")
    gate = room.load(registry.find("churn"))
    table = settings({"max_warm_ttft_ratio": 0.5, "warm_up_ratio": 0.0, **changes})
    said = room.judge(gate, history.read(folder / "history.jsonl"), table, None)
    return {measure.id.removeprefix("churn."): measure for measure in said.measures}


def off(found: dict[str, Measure]) -> dict[str, str]:
    """The claims that do not hold, and how."""
    return {name: measure.verdict.value for name, measure in found.items() if measure.verdict != "pass"}


def grow(record: Record, mib: float) -> None:
    record.held = [MIB * (500 + mib * n) for n in range(60)]


def leave(record: Record) -> None:
    del record


def hide(record: Record) -> None:
    record.held = [None] * 60


def stop_looking(record: Record) -> None:
    record.held = [500.0 * MIB] * 40 + [None] * 20


def lose_a_round(record: Record) -> None:
    record.rounds[2] = {
        "kind": "info", "cell": "deep", "key": "key2", "expected": ["700002"], "round": 2, "max_tokens": 64,
        "error": "DeadlinePassed", "message": "late", "alive": True,
    }  # fmt: skip


def test_a_good_history_passes(tmp_path: Path) -> None:
    assert {} == off(judged(leave, tmp_path))


@pytest.mark.parametrize(
    ("claims", "change"),
    [
        pytest.param({"recall_ratio"}, lambda r: r.rounds[3].update(text="code 123456"), id="wrong_code"),
        pytest.param(
            {"recall_ratio", "crosstalk_count"},
            lambda r: r.rounds[3].update(text="code 500000"),
            id="strange_code",
        ),
        pytest.param(
            {"crosstalk_count", "client_ratio"},
            lambda r: r.short.update(text="code 500000, or 600000"),
            id="own_code_and_a_strange_one",
        ),
        pytest.param({"cached_ratio"}, lambda r: r.rounds[4].update(cached_tokens=0), id="computed_again"),
        pytest.param({"warm_ttft_ratio"}, lambda r: r.rounds[4].update(first_token_s=3.0), id="slow_round"),
        pytest.param({"tenant_leak_count"}, lambda r: r.twin.update(cached_tokens=90), id="shared_tenant"),
        pytest.param(
            {"accuracy_drop_ratio", "altered_count"},
            lambda r: r.after[1].update(text="code 1"),
            id="worse_afterwards",
        ),
        pytest.param(
            {"altered_count"}, lambda r: r.after[1].update(text="it is code 400001"), id="other_words"
        ),
        pytest.param({"memory_slope_bytes", "memory_growth_ratio"}, lambda r: grow(r, 5), id="leak"),
        pytest.param(
            {"ceiling_fault_count"}, lambda r: r.storm.append(_refusal(retry_after_s=None)), id="no_time"
        ),
        pytest.param(
            {"ceiling_fault_count", "empty_count"},
            lambda r: r.storm.append(_answer("", [], cell="storm", key="t") | {"completion_tokens": 0}),
            id="empty_200_in_the_storm",
        ),
        pytest.param(
            {"malformed_fault_count"}, lambda r: r.malformed.append({"status": 500}), id="broke_on_nonsense"
        ),
        pytest.param(
            {"malformed_fault_count"}, lambda r: r.malformed.append({"status": 200}), id="took_nonsense"
        ),
        pytest.param(
            {"empty_count", "client_ratio"},
            lambda r: r.short.update(text=" ", completion_tokens=1),
            id="empty_answer",
        ),
        pytest.param(
            {"unanswered_count"}, lambda r: r.late.append(("short", "fail", _late())), id="refused_in_calm"
        ),
        pytest.param({"leftover_count"}, lambda r: setattr(r, "settled", 2.0), id="still_open"),
        pytest.param({"leftover_count"}, lambda r: r.left.append("port 8000"), id="left_a_port"),
        pytest.param(
            {"usage_error_ratio"}, lambda r: r.short.update(completion_tokens=70), id="beyond_the_limit"
        ),
        pytest.param({"recall_ratio", "rounds_count", "unanswered_count"}, lose_a_round, id="lost_round"),
    ],
)
def test_what_is_wrong_breaks_its_claim_and_no_other(
    claims: set[str], change: Change, tmp_path: Path
) -> None:
    assert dict.fromkeys(claims, "fail") == off(judged(change, tmp_path))


def _late() -> dict[str, Any]:
    fields = _refusal(cell="late", key="k", expected=["1"])
    del fields["kind"]
    return fields


@pytest.mark.parametrize(
    ("claims", "change", "changes"),
    [
        pytest.param({"warm_ttft_ratio"}, lambda r: r.cold.update(first_token_s=None), {}, id="no_cold_time"),
        pytest.param(
            {"warm_ttft_ratio"},
            lambda r: [one.update(host_busy_ratio=0.5) for one in r.rounds],
            {"quiet_host_ratio": 0.1},
            id="busy_host",
        ),
        pytest.param({"pinned_evicted_count"}, lambda r: r.counted.clear(), {}, id="no_counters"),
        pytest.param(
            {"leftover_count"}, lambda r: setattr(r, "settled", None), {}, id="open_ones_not_counted"
        ),
        pytest.param({"leftover_count"}, lambda r: r.leaves.remove("reset_in_stream"), {}, id="nobody_left"),
        pytest.param({"ceiling_count"}, lambda r: r.storm.pop(0), {}, id="no_ceiling_met"),
        pytest.param({"memory_slope_bytes", "memory_growth_ratio"}, hide, {}, id="memory_not_seen"),
        pytest.param({"memory_slope_bytes", "memory_growth_ratio"}, stop_looking, {}, id="end_not_seen"),
        pytest.param(
            {"cached_ratio"},
            lambda r: r.rounds[4].update(cached_tokens=None),
            {},
            id="a_round_does_not_say",
        ),
        pytest.param(
            {"memory_slope_bytes", "memory_growth_ratio"},
            leave,
            {"device_memory": True},
            id="no_device",
        ),
        pytest.param(
            {"tenant_leak_count"}, lambda r: r.twin.update(cached_tokens=None), {}, id="no_cached_count"
        ),
        pytest.param(
            {"tenant_leak_count"},
            lambda r: r.late.append(
                ("twin", "ok", {k: v for k, v in r.twin.items() if k != "cached_tokens"})
            ),
            {},
            id="one_twin_of_two_is_silent",
        ),
    ],
)
def test_what_cannot_be_seen_never_passes(
    claims: set[str], change: Change, changes: dict[str, Value], tmp_path: Path
) -> None:
    found = off(judged(change, tmp_path, **changes))

    assert claims == set(found)
    assert {"unknown"} == set(found.values())


def test_a_slope_that_is_too_wide_to_tell_is_unknown(tmp_path: Path) -> None:
    def waver(record: Record) -> None:
        draw = random.Random(1)
        record.held = [MIB * (500 + draw.uniform(0, 40)) for _ in range(60)]

    found = judged(waver, tmp_path, max_memory_slope_bytes=1000)

    assert {"memory_slope_bytes": "unknown"} == off(found)
    assert "too wide to tell" in found["memory_slope_bytes"].note
    assert "" == found["memory_slope_bytes"].judged


@pytest.mark.parametrize(("limit", "end", "word"), [(2**40, 1, "upper end"), (1, 0, "lower end")])
def test_the_estimate_of_a_slope_is_kept_beside_the_end_that_is_judged(
    limit: int, end: int, word: str, tmp_path: Path
) -> None:
    def waver(record: Record) -> None:
        draw = random.Random(1)
        record.held = [MIB * (500 + second + draw.uniform(0, 4)) for second in range(60)]

    slope = judged(waver, tmp_path, max_memory_slope_bytes=limit)["memory_slope_bytes"]

    assert slope.interval is not None
    assert slope.estimate is not None
    assert slope.interval[0] < slope.estimate < slope.interval[1]
    assert (slope.interval[end], word) == (slope.value, slope.judged)


def test_a_refusal_in_a_storm_is_excused_when_it_is_asked_again(tmp_path: Path) -> None:
    def refuse_first(record: Record) -> None:
        record.rounds.insert(0, _refusal(cell="deep", key="key0", expected=["700000"], round=0))

    assert {} == off(judged(refuse_first, tmp_path))


def test_both_drawings_have_points(tmp_path: Path) -> None:
    record = Record()
    record.write(tmp_path / "history.jsonl")
    gate = room.load(registry.find("churn"))
    said = room.judge(gate, history.read(tmp_path / "history.jsonl"), settings({}), None)

    assert ["memory", "first_token"] == [picture.name for picture in said.pictures]
    assert all("<polyline" in picture.svg for picture in said.pictures)
