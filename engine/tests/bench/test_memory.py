"""The bench of memory: it runs whole on a small model, and its deep states are real ones repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.bench.memory import SEED_TOKENS, deep, describe
from engine.cli import main
from engine.runner import Runner, Threads


def test_all_figures_come_from_one_command(small_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--memory", "--depths", str(SEED_TOKENS), "--decode", "2", "--json"]
    code = main(["bench", str(small_path), *words])
    report = json.loads(capsys.readouterr().out)

    assert 0 == code
    assert report["bytes_per_token"]["packed"] < report["bytes_per_token"]["wide"]
    (row,) = report["decode"]
    assert SEED_TOKENS == row["depth"]
    assert row["ratio"] == pytest.approx(row["packed_s"] / row["wide_s"])
    assert report["first_token"]["warm_cached"] >= SEED_TOKENS
    assert report["disk"]["nbytes"] > SEED_TOKENS * report["bytes_per_token"]["packed"]
    assert all(f"{SEED_TOKENS} tokens" in line for line in describe(report).splitlines()[1:])


def test_a_deep_state_is_a_short_one_repeated(small_path: Path) -> None:
    runner = Runner(small_path, threads=Threads(1, 1))
    once, twice = deep(runner, SEED_TOKENS), deep(runner, 2 * SEED_TOKENS)
    for name, rows in once.arrays({}).items():
        if name.startswith("rows."):
            both = twice.arrays({})[name]
            assert rows.tobytes() * 2 == both.tobytes()

    assert (SEED_TOKENS, 2 * SEED_TOKENS) == (once.length, twice.length)
    assert torch.isfinite(runner.step([(twice, [5])])).all()


def test_depths_that_no_repetition_gives_are_refused(
    small_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["bench", str(small_path), "--memory", "--depths", "1000"])
    assert "whole multiples of 1024" in capsys.readouterr().err
