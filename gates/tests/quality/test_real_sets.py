"""The real sets, where SPARKGATE_DATA names them: as many rows as published, and gold answers that pass."""

from __future__ import annotations

import json

from gates.quality import gsm8k, mmlu
from gates.tests.quality.real import needs_sets, store

pytestmark = needs_sets


def test_every_gold_solution_of_gsm8k_passes() -> None:
    rows = list(store().rows(gsm8k.FILE))
    problems = list(gsm8k.problems(iter(rows)))

    assert 1319 == len(problems)
    for problem, row in zip(problems, rows, strict=True):
        assert "pass" == gsm8k.grade(problem, row["answer"]).state
        assert "pass" == gsm8k.grade(problem, row["answer"].replace("####", "The answer is")).state


def test_the_subsets_of_mmlu_are_the_published_ones() -> None:
    problems = list(mmlu.problems(store().rows(mmlu.FILE)))
    published = json.loads((store().folder / "mmlu" / "subsets.json").read_text(encoding="utf-8"))["subjects"]

    assert 14042 == len(problems)
    for rows, total in ((10, 570), (20, 1140)):
        chosen = mmlu.subset(problems, rows=rows)
        found: dict[str, list[int]] = {}
        for problem in chosen:
            found.setdefault(problem.subject, []).append(problem.index)
        assert total == len(chosen)
        assert {name: indexes[f"first{rows}"] for name, indexes in published.items()} == found
