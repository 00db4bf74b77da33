"""The engine against golden logits of an independent engine, from files with production names and types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fixtures.vectors
from engine.kernels.ref.rounding import Numerics
from engine.runner import Runner, Threads
from engine.tests.oracle.golden_ops import GoldenOps
from fixtures.vectors.golden_model import build_golden

pytestmark = pytest.mark.oracle
COLUMNS = 4  # the golden file keeps every fourth logit


@dataclass(frozen=True, slots=True)
class Golden:
    """One model file and what the other engine computed with it."""

    path: Path
    ids: list[int]
    logits: Tensor
    best: Tensor


def _golden(folder: Path, ratio: int) -> Golden:
    with np.load(Path(fixtures.vectors.__file__).with_name("golden_logits.npz")) as stored:
        logits, best = stored[f"logits_ratio{ratio}"], stored[f"best_ratio{ratio}"]
        ids = stored["ids"].tolist()
    path = build_golden(folder / f"golden{ratio}.gguf", ratio=ratio)
    return Golden(path, ids, torch.from_numpy(logits), torch.from_numpy(best).long())


@pytest.mark.parametrize(("ratio", "rows"), [(0, 50), (4, 15), (128, 80)])
def test_with_the_other_engines_roundings_rows_agree_exactly(tmp_path: Path, ratio: int, rows: int) -> None:
    """150, 35 and 143 rows agreed when this was written; one flipped rounding moves a whole row."""
    golden = _golden(tmp_path, ratio)
    runner = Runner(golden.path, numerics=Numerics(tail_bf16=False), ops=GoldenOps, threads=Threads(1, 1))
    found = runner.score(runner.new_cache(), golden.ids)[:, ::COLUMNS]

    assert rows <= int(((found - golden.logits).abs().amax(1) <= 1e-4).sum())


@pytest.mark.parametrize(("ratio", "agreement"), [(0, 0.95), (4, 0.93), (128, 0.95)])
def test_with_our_own_roundings_the_answers_agree(tmp_path: Path, ratio: int, agreement: float) -> None:
    golden = _golden(tmp_path, ratio)
    runner = Runner(golden.path, threads=Threads(1, 1))
    found = runner.score(runner.new_cache(), golden.ids)

    assert agreement <= (found.argmax(1) == golden.best).float().mean().item()
    assert 0.08 >= (found[:, ::COLUMNS] - golden.logits).abs().amax(1).median().item()
