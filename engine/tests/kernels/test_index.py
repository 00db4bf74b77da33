"""Selection of rows by the indexer: a total order, lowest row first among equals."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.ref import index


def _choose(scores: list[float], visible: int, k: int) -> list[int]:
    ranked = sorted(range(visible), key=lambda row: (-scores[row], row))
    chosen = sorted(ranked[:k])
    return chosen + [index.EMPTY] * (k - len(chosen))


@given(
    rows=st.lists(
        st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1e-30, 0.5, 0.5000001, 3.0]), min_size=13, max_size=13),
        min_size=1,
        max_size=6,
    ),
    k=st.integers(1, 20),
    data=st.data(),
)
def test_the_best_visible_rows_are_chosen_in_ascending_order(
    rows: list[list[float]], k: int, data: st.DataObject
) -> None:
    visible = data.draw(st.lists(st.integers(0, 13), min_size=len(rows), max_size=len(rows)))

    found = index.select(torch.tensor(rows), torch.tensor(visible), k)

    wanted = [_choose(scores, shown, k) for scores, shown in zip(rows, visible, strict=True)]
    assert wanted == found.tolist()


def test_scores_follow_the_formula() -> None:
    generator = torch.Generator().manual_seed(1)
    q, keys = torch.randn(5, 2, 32, generator=generator), torch.randn(24, 32, generator=generator)
    weights = torch.randn(5, 2, generator=generator)

    wanted = (torch.einsum("thd,rd->thr", q, keys).relu() * weights.unsqueeze(-1)).sum(1)

    torch.testing.assert_close(index.scores(q, keys, weights), wanted, rtol=1e-5, atol=1e-5)
