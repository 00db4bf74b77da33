"""Two checkouts in turns: the order of the runs, what is made of their figures, and whose code runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.bench.against import ROOT, Report, compare, describe, figures, run_bench
from engine.cli import main
from engine.errors import EngineError, SettingError

# Prints what runs, and how fast its checkout says it is.
PROGRAM = """
import json, pathlib, sys
speed = float(pathlib.Path(__file__).with_name("speed").read_text())
row = {"depth": 8, "prefill_tok_s": 100 * speed, "decode_tok_s": 10 * speed}
print(json.dumps({"words": sys.argv[1:], "depths": [row]}))
"""


def checkout(folder: Path, speed: str = "1", program: str = PROGRAM) -> Path:
    (folder / "engine").mkdir(parents=True)
    (folder / "engine" / "__main__.py").write_text(program)
    (folder / "engine" / "speed").write_text(speed)
    return folder


def card_report(ms: float, rate: float) -> dict[str, Any]:
    return {
        "decode": [{"depth": 2048, "rows": 1, "ms": ms}],
        "rows": [{"depth": 2048, "rows": 5, "ms": 2 * ms}],
        "prefill": [{"tokens": 8192, "tok_s": rate}],
        "products": {"1": [{"product": "q_b", "us": 10 * ms}]},
    }


def test_runs_alternate_and_each_pair_of_neighbours_is_compared(tmp_path: Path) -> None:
    """A machine that slows down from run to run, with a build here that is a quarter faster."""
    other, ran = checkout(tmp_path / "other"), list[str]()

    def bench(path: Path, words: Sequence[str]) -> Report:
        assert ["--decode", "9"] == words
        ran.append("A" if path == other else "B")
        slow = 1 + 0.01 * len(ran)
        return (
            card_report(ms=8 * slow, rate=100 / slow)
            if path == other
            else card_report(6.4 * slow, 125 / slow)
        )

    found = compare(other, ["--decode", "9"], 2, bench)

    assert "ABBAABBA" == "".join(ran) == found["order"]
    assert ["ms", "ms", "tok_s", "us"] == [row["figure"].split()[-1] for row in found["figures"]]
    for row in found["figures"]:
        assert row["low"] < 1.25 < row["high"]
        assert pytest.approx(1.25, abs=0.001) == row["faster"]
        assert pytest.approx(1.25, abs=0.02) in (row["ours"] / row["other"], row["other"] / row["ours"])
    assert 2 + len(found["figures"]) == len(describe(found).splitlines())


def test_what_only_one_build_reports_is_named_and_not_compared(tmp_path: Path) -> None:
    other = checkout(tmp_path / "other")
    reports = {other: card_report(8, 100) | {"rows": []}, ROOT: card_report(8, 100)}
    found = compare(other, [], 1, lambda path, _: reports[path])

    assert ["rows: depth 2048, rows 5: ms"] == found["in_one_only"]
    assert 3 == len(found["figures"])
    assert "in one of them only: rows" in describe(found)


def test_every_kind_of_report_has_figures() -> None:
    text = {"depths": [{"depth": 8, "prefill_tok_s": 5.0, "decode_tok_s": 2.0}]}
    loads = {"loads": [{"seconds": 9.0}, {"seconds": 8.0}]}

    assert {
        "depths: depth 8: prefill_tok_s": (5.0, True),
        "depths: depth 8: decode_tok_s": (2.0, True),
    } == figures(text)
    assert [9.0, 8.0] == [value for value, _ in figures(loads).values()]


def test_a_checkout_runs_its_own_code(tmp_path: Path) -> None:
    report = run_bench(checkout(tmp_path / "other", "3"), ["model.gguf", "--depths", "8"])

    assert ["bench", "model.gguf", "--depths", "8", "--json"] == report["words"]
    assert 30.0 == report["depths"][0]["decode_tok_s"]


def test_a_bench_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="ended with code 3"):
        run_bench(checkout(tmp_path / "other", program="import sys; sys.exit(3)"), [])


@pytest.mark.parametrize(("folder", "turns", "message"), [(".", 1, "--against"), ("other", 0, "--turns")])
def test_what_cannot_be_compared_is_refused(tmp_path: Path, folder: str, turns: int, message: str) -> None:
    checkout(tmp_path / "other")

    with pytest.raises(SettingError, match=message):
        compare(tmp_path / folder, [], turns, lambda *_: pytest.fail("a bench ran"))


def test_the_command_hands_on_what_the_bench_itself_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both checkouts are stand-ins here, so that nothing is measured."""
    other, ours = checkout(tmp_path / "other", "2"), checkout(tmp_path / "ours", "3")
    monkeypatch.setattr("engine.bench.against.ROOT", ours)
    out = tmp_path / "found.json"
    words = ["m.gguf", "--against", str(other), "--depths", "8", "--turns", "2", "--json", "--out", str(out)]
    code = main(["bench", *words])
    printed = json.loads(capsys.readouterr().out)

    assert 0 == code
    assert json.loads(out.read_text()) == printed
    assert ("ABBAABBA", [1.5, 1.5]) == (printed["order"], [row["faster"] for row in printed["figures"]])


@pytest.mark.nightly
def test_two_real_checkouts_are_compared_on_a_cpu(
    tmp_path: Path, small_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one says that it is ten times as fast as it is."""
    other = tmp_path / "other"
    shutil.copytree(ROOT / "engine", other / "engine", ignore=shutil.ignore_patterns("tests", "__pycache__"))
    service = other / "engine" / "bench" / "service.py"
    service.write_text(
        service.read_text().replace("round(tokens / seconds, 1)", "round(10 * tokens / seconds, 1)")
    )
    words = [str(small_path), "--depths", "64", "--decode", "40", "--threads", "1"]
    code = main(["bench", *words, "--against", str(other), "--json"])
    found = json.loads(capsys.readouterr().out)

    assert 0 == code
    assert all(0.05 < row["faster"] < 0.2 for row in found["figures"])
