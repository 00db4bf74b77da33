"""Selection of rows by the indexer: a total order, lowest row first among equals."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.ref import index

_SCORES = st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 1e-30, 0.5, 0.5000001, 3.0])


def _choose(scores: list[float], k: int) -> list[int]:
    ranked = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    return sorted(ranked[:k])


@given(
    rows=st.lists(st.lists(_SCORES, min_size=13, max_size=13), min_size=1, max_size=6), k=st.integers(1, 12)
)
def test_the_best_rows_are_chosen_in_ascending_order(rows: list[list[float]], k: int) -> None:
    assert [_choose(scores, k) for scores in rows] == index.select(torch.tensor(rows), k).tolist()


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 4),
    width=st.sampled_from([64, 72, 128, 200]),
    k=st.integers(1, 5),
    distinct=st.sampled_from([2, 5, 50, 10**6]),
)
def test_wide_queries_choose_the_same_in_two_rounds(
    seed: int, count: int, width: int, k: int, distinct: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    score = torch.randint(0, distinct, (count, width), generator=random).float()

    assert [_choose(row, k) for row in score.tolist()] == index.select(score, k).tolist()


def test_scores_follow_the_formula() -> None:
    random = torch.Generator().manual_seed(1)
    q, keys = torch.randn(5, 2, 32, generator=random), torch.randn(24, 32, generator=random)
    weights = torch.randn(5, 2, generator=random)

    wanted = (torch.einsum("thd,rd->thr", q, keys).relu() * weights.unsqueeze(-1)).sum(1)

    torch.testing.assert_close(index.scores(q, keys, weights), wanted, rtol=1e-5, atol=1e-5)
