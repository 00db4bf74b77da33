"""The measured part of docs/performance.md against its record, and what is made of a report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.device import bench
from reports import speed, speed_plot
from reports.speed_goals import GOALS, Goal, share, table

NAMED = re.findall(r"\(\.\./reports/bench/([\w.-]+\.json)\)", speed.DOCUMENT.read_text(encoding="utf-8"))


def record() -> dict[str, Any]:
    """What the document's record holds."""
    found: dict[str, Any] = json.loads((speed.RECORDS / NAMED[0]).read_text(encoding="utf-8"))
    return found


def small() -> dict[str, Any]:
    """A report of a few layers, with every part that a report can have."""
    row = {"rows": 1, "tok_s": 100.0, "kernels": [{"kernel": "dense", "us": 9.0, "launches": 2}]}
    product = {"product": "q_b", "launches": 2, "mb": 30.0, "us": 10.0, "read_us": 8.0}
    product |= {"share_of_read": 0.8, "tb_s": 3.0}
    costs = {"depth": 2048, "plain_us": 1e4, "upper": [10_000] * 5}
    costs |= {"cost": [10_000, 11_000, 12_000, 13_000, 14_100]}
    prompt = {"tokens": 8192, "chunk": 4096, "tok_s": 9000.0, "last_ms": 500.0, "chunks_ms": [450.0, 500.0]}
    return {
        "card": "NVIDIA GeForce RTX 5090",
        "torch": "2.11.0+cu130",
        "triton": "3.6.0",
        "layers": 5,
        "bandwidth": {"copy_tb_s": 1.5, "read_tb_s": 1.6},
        "decode": [{**row, "depth": 2048, "ms": 10.0}, {**row, "depth": 131072, "ms": 12.0}],
        "rows": [{**row, "depth": 2048, "rows": 5, "ms": 15.0}],
        "products": {"1": [product]},
        "prefill": [{**prompt, "kernels": row["kernels"]}],
        "capacity": {"tokens": 7_000_000},
        "storage": {"depth": 131072, "packed_by_wide": 0.97},
        "sampling": {"likeliest_us": 9.0, "all_us": 20.0, "limited_us": 30.0},
        "costs_same_token": {"depths": [{**costs, "depth": 2048}]},
        "costs": {
            "unit": 10_000,
            "rows": [1, 2, 3, 4, 5],
            "rounds": 32,
            "depths": [costs],
        },
    }


def test_the_document_says_what_its_record_holds() -> None:
    """Run `python reports/speed.py reports/bench/NAME.json --commit HASH` after a change of either."""
    text = speed.DOCUMENT.read_text(encoding="utf-8")

    assert 1 == len(NAMED)
    assert text == speed.replaced(text, speed.section(record(), NAMED[0]))
    assert NAMED[0] == speed.file_name(record())
    assert speed_plot.describe(record()) in speed.PLOT.read_text(encoding="utf-8")


def test_no_record_lies_about_that_the_document_does_not_name() -> None:
    assert sorted(NAMED) == sorted(path.name for path in speed.RECORDS.iterdir())


def test_the_same_record_gives_the_same_drawing() -> None:
    drawn = speed_plot.draw(record())

    assert drawn == speed_plot.draw(record())
    assert drawn.startswith("<?xml")
    assert "<script" not in drawn


@pytest.mark.parametrize("missing", ["chunks_ms", "prefill", None])
def test_a_report_of_few_layers_and_parts_is_drawn_and_worded(missing: str | None) -> None:
    report = speed.completed(small(), "abc1234", None)
    if missing == "prefill":
        report["prefill"] = []
    elif missing:
        del report["prefill"][0][missing]
    worded = speed.section(report, speed.file_name(report))

    assert "public CUDA engine" not in speed_plot.draw(report)
    assert "GB10" not in worded
    assert "one token in all rows, at 2,048, where rows share experts: 1.100, 1.200, 1.300, 1.410." in worded
    assert "| 2,048 | 10.00 ms | 1.100 (1.000) | 1.200 (1.000) | 1.300 (1.000) | 1.410 (1.000) |" in worded
    assert report["date"] + "-geforce-rtx-5090-5-layers.json" == speed.file_name(report)


def test_a_report_becomes_record_plot_and_document_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RECORDS", "PLOT", "DOCUMENT"):
        monkeypatch.setattr(speed, name, tmp_path / name)
    speed.RECORDS.mkdir()
    speed.DOCUMENT.write_text(f"before\n{speed.OPEN}\nold\n{speed.CLOSE}\nafter\n")
    report, load = tmp_path / "report.json", tmp_path / "load.json"
    report.write_text(json.dumps({**small(), "date": "2026-11-30"}))
    loads = [{"seconds": 0.5, "gb_s": 2.1}, {"seconds": 0.2, "gb_s": 5.4}]
    load.write_text(json.dumps({"bytes": 2**30, "loads": loads}))
    code = speed.main([str(report), "--commit", "abc1234", "--load", str(load)])
    text = speed.DOCUMENT.read_text()
    kept = json.loads((speed.RECORDS / "2026-11-30-geforce-rtx-5090-5-layers.json").read_text())

    assert 0 == code
    assert ("abc1234", 5.4) == (kept["commit"], kept["load"]["loads"][1]["gb_s"])
    assert ("before", "after") == (text.splitlines()[0], text.splitlines()[-1])
    assert "old" not in text
    assert "in 0.5 s (2.1 GB/s) and in 0.2 s (5.4 GB/s)" in text
    assert "| model file to the card from memory, GB/s | 5.4 | ≥ 4.0 ✓ | none | none |" in text
    assert "commit abc1234" in speed.PLOT.read_text()


@given(value=st.floats(0.01, 1e6), limit=st.floats(0.01, 1e6), more=st.booleans())
def test_a_mark_stands_where_a_figure_holds_and_nowhere_else(value: float, limit: float, more: bool) -> None:
    row = Goal("figure", lambda _: value, (limit, None, None), more=more).row({})

    assert (value >= limit if more else value <= limit) == ("✓" in row)
    assert ("≥" if more else "≤") in row


def test_a_figure_that_was_not_measured_has_no_row() -> None:
    rows = table(small())

    assert "519K" not in rows
    assert "| packed ÷ wide rows at 131K | 0.97 | ≤ 1.00 ✓ | ≤ 1.00 ✓ | ≤ 0.95 |" in rows
    assert "packed ÷ wide" not in table(small() | {"storage": {"depth": 2048, "packed_by_wide": 0.97}})
    assert "| time a token at 131K ÷ at 2K | 1.20 | ≤ 1.30 ✓ | ≤ 1.15 | none |" in rows
    assert "| step of five rows ÷ of one, 2K | 1.50 | ≤ 2.00 ✓ | ≤ 1.75 ✓ | ≤ 1.40 |" in rows
    assert len({goal.name for goal in GOALS}) == len(GOALS)
    assert 0.8 == share(small(), "q_b")


def test_what_the_bench_says_of_both_storages_is_what_the_table_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = SimpleNamespace(positions=torch.zeros(1), run=lambda: torch.ones(2))
    monkeypatch.setattr(bench, "DecodeStep", lambda *_: step)
    monkeypatch.setattr(bench, "_decode", lambda model, *_: {"ms": model.cache.ms})
    packed = SimpleNamespace(ms=9.0, widened=lambda _: SimpleNamespace(ms=10.0))
    weights = SimpleNamespace(spec=None)
    model = bench.Loaded(cast(Any, weights), cast(Any, packed), cast(Any, None), lambda _: None)
    found = bench._storages(model, 131072, 1)

    assert "| packed ÷ wide rows at 131K | 0.90 |" in table(small() | {"storage": found})


def test_a_step_reads_the_bytes_of_the_distinct_experts() -> None:
    distinct = [(speed.floor_gb(rows) - speed.DENSE_GB) / speed.EXPERT_GB for rows in (1, 2, 5, 16)]

    assert [6.0, 11.86, 28.63, 80.8] == pytest.approx(distinct, abs=0.05)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("_enter", "enter"),
        ("routed_down_1", "routed_down_1"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coo", "cuBLAS"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", "reduce_kernel"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
    ],
)
def test_kernels_are_named_shortly(kernel: str, name: str) -> None:
    assert name == speed.short(kernel)


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the line"):
        speed.replaced("no marks", "text")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        pytest.param({"storage": {"depth": 131072, "same_logits": False}}, "packed rows", id="other_logits"),
        pytest.param({"rows": [{"rows": 5, "finite": False}]}, "finite", id="not_finite"),
    ],
)
def test_a_report_of_a_build_that_computes_wrongly_is_not_kept(
    part: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps(small() | part), encoding="utf-8")

    with pytest.raises(SystemExit):
        speed.main([str(report)])

    assert said in capsys.readouterr().err
    assert "" == speed.wrong(small())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", "JSONDecodeError", id="empty"),
        pytest.param("[]", "no JSON object", id="list"),
        pytest.param('{"layers": 5}', "it lacks card, torch", id="cut_short"),
        pytest.param(json.dumps(small() | {"decode": []}), "2,048 tokens", id="no_step"),
        pytest.param(json.dumps(small() | {"bandwidth": {"copy_tb_s": "x"}}), "not kept", id="words"),
        pytest.param(json.dumps(small() | {"bandwidth": {"copy_tb_s": 0}}), "not kept", id="zero"),
        pytest.param(json.dumps(small() | {"layers": float("nan")}), "number NaN", id="nan"),
        pytest.param(json.dumps(small() | {"layers": "5"}), "layers are '5'", id="layers"),
        pytest.param(json.dumps(small() | {"date": "../../x"}), "its date is", id="date"),
        pytest.param(json.dumps(small() | {"storage": []}), "not kept", id="storage"),
        pytest.param(None, "cannot be read", id="missing"),
    ],
)
def test_a_damaged_or_partial_report_is_refused_in_one_line_and_changes_nothing(
    content: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = tmp_path / "report.json"
    if content is not None:
        report.write_text(content)
    (tmp_path / "RECORDS").mkdir()
    for name in ("RECORDS", "PLOT", "DOCUMENT"):
        monkeypatch.setattr(speed, name, tmp_path / name)
    speed.DOCUMENT.write_text(f"{speed.OPEN}\nold\n{speed.CLOSE}\n")

    with pytest.raises(SystemExit) as stop:
        speed.main([str(report), "--commit", "abc1234"])

    assert 2 == stop.value.code
    assert said in capsys.readouterr().err
    assert "old" in speed.DOCUMENT.read_text()
    assert not speed.PLOT.exists()
    assert [] == list(speed.RECORDS.iterdir())
