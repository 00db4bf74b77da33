"""The judge of equivalence on histories written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates.equivalence import table
from gates.harness import history, room
from gates.harness.history import Event, History
from gates.harness.verdict import GateVerdict, Judgement, Measure, Verdict
from gates.tests.driving import broken
from gates.tests.equivalence.driving import judged

EQUAL = {"equal": True, "difference": None, "engaged": {"it ran": True}, "arrays": 1, "values": 10}
DIFFERENCE = {
    "tensor": "logits",
    "index": [129, 7],
    "left": "1.0 (0x3f800000)",
    "right": "1.0000001 (0x3f800001)",
    "differing": 3,
    "size": 100,
}
Result = tuple[str, dict[str, Any]]  # ok, fail or info, and the fields of the end
Change = Callable[[str, str], Result | None]  # of a case; None leaves it good


def written(folder: Path, change: Change = lambda *_: None, *, planned: int | None = None) -> list[Event]:
    """A history with one case of everything, all good but what the change says."""
    cases = [("pair", pair.id, "x") for pair in table.PAIRS] + [("twin", t.id, "small") for t in table.TWINS]
    with History(folder / "history.jsonl") as record:
        record.note(room.PLANNED, cells=len(cases) if planned is None else planned)
        for what, subject, name in cases:
            op = record.invoke(what, subject=subject, case=name)
            good = EQUAL if what == "pair" else {"error_found": 0.0, "worst": 0}
            kind, fields = change(what, subject) or ("ok", good)
            {"ok": record.ok, "fail": record.fail, "info": record.unknown}[kind](op, what, **fields)
        record.note(room.FINISHED)
    return history.read(folder / "history.jsonl")


def measure(judgement: Judgement, name: str) -> Measure:
    return next(one for one in judgement.measures if one.id == f"equivalence.{name}")


def verdict(judgement: Judgement) -> Verdict:
    return GateVerdict("equivalence", 0.0, None, judgement).verdict


def only(subject: str, kind: str, **fields: Any) -> Change:
    """A change of one case."""
    return lambda _, mine: (kind, fields) if mine == subject else None


def test_a_good_record_passes_with_a_row_a_pair_and_a_kernel(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path))

    assert Verdict.PASS == verdict(judgement)
    assert () == judgement.findings
    assert [len(table.PAIRS), len(table.TWINS)] == [len(one.rows) for one in judgement.tables]


def test_a_difference_fails_its_family_alone_and_names_the_place(tmp_path: Path) -> None:
    change = only("fork", "ok", **{**EQUAL, "equal": False, "difference": DIFFERENCE})
    judgement = judged(written(tmp_path, change))

    assert {"equivalence.prefix_differing_count"} == broken(judgement)
    note = measure(judgement, "prefix_differing_count").note
    assert "logits [129, 7]: 1.0 (0x3f800000) and 1.0000001 (0x3f800001) (3 of 100 differ)" in note
    assert ["fork, x"] == [finding.where for finding in judgement.findings]
    assert table.pair("fork").reason == judgement.findings[0].detail


def test_a_pair_that_did_not_engage_shows_nothing(tmp_path: Path) -> None:
    change = only("evicted", "ok", **{**EQUAL, "engaged": {"it had to go": False}})
    judgement = judged(written(tmp_path, change))
    found = measure(judgement, "restore_differing_count")

    assert (Verdict.UNKNOWN, "evicted, x idle: not so: it had to go") == (found.verdict, found.note)
    assert Verdict.UNKNOWN == verdict(judgement)


def test_a_pair_that_compared_nothing_shows_nothing(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path, only("fork", "ok", **{**EQUAL, "arrays": 0, "values": 0})))
    found = measure(judgement, "prefix_differing_count")

    assert (Verdict.UNKNOWN, "fork, x idle: no value was compared") == (found.verdict, found.note)


def test_a_difference_counts_also_where_nothing_engaged(tmp_path: Path) -> None:
    change = only("alike", "ok", **{**EQUAL, "difference": DIFFERENCE, "engaged": {"both": False}})

    assert {"equivalence.prefix_differing_count"} == broken(judged(written(tmp_path, change)))


def test_a_crash_is_the_engines_fault_and_leaves_its_family_open(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path, only("cut", "fail", error="IndexError: boom")))

    assert {"equivalence.crashed_count"} == broken(judgement)
    assert Verdict.UNKNOWN == measure(judgement, "cuts_differing_count").verdict


def test_a_lost_case_is_nobodys_fault(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path, only("cut", "info", error="MemoryError")))

    assert set() == broken(judgement)
    assert Verdict.UNKNOWN == measure(judgement, "cuts_differing_count").verdict
    assert Verdict.UNKNOWN == measure(judgement, "crashed_count").verdict


def test_what_cannot_be_run_here_is_said_and_counted(tmp_path: Path) -> None:
    apart = ("captured", "device_rows")
    reason = {"inapplicable": "no accelerator"}
    judgement = judged(written(tmp_path, lambda _, mine: ("ok", reason) if mine in apart else None))
    found = measure(judgement, "device_differing_count")

    assert (Verdict.PASS, 0, "not applicable: no accelerator") == (found.verdict, found.n, found.note)
    count = measure(judgement, "inapplicable_count")
    assert (2, "captured, device_rows: no accelerator") == (count.value, count.note)


def test_a_kernel_that_cannot_be_run_is_not_passed(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path, only("streams", "ok", inapplicable="no accelerator")))

    assert Verdict.UNKNOWN == measure(judgement, "twin_error_ratio").verdict


@pytest.mark.parametrize(
    ("twin", "error", "verdict_wanted"),
    [
        ("streams", 0.9e-5, Verdict.PASS),
        ("streams", 1.1e-5, Verdict.FAIL),
        ("bf16", 0.0, Verdict.PASS),
        ("bf16", 1.0, Verdict.FAIL),
        ("unpacked_rows", 1e30, Verdict.FAIL),
    ],
)
def test_kernels_are_held_against_their_tolerance(
    tmp_path: Path, twin: str, error: float, verdict_wanted: Verdict
) -> None:
    judgement = judged(written(tmp_path, only(twin, "ok", error_found=error, worst=5)))

    assert verdict_wanted == measure(judgement, "twin_error_ratio").verdict


def test_missing_cases_pass_nothing(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path, planned=1000))

    assert Verdict.UNKNOWN == verdict(judgement)
    assert set() == broken(judgement)
