"""Attention over tiles against the plain formula, and the bits of a query among others."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.ref.attention import Tile, attend


def _plain(q: Tensor, rows: Tensor, visible: Tensor, sinks: Tensor) -> Tensor:
    """Softmax over visible rows [T, S, D] and one sink a head, in float64."""
    q, rows = q.double(), rows.double()
    score = torch.einsum("thd,tsd->ths", q, rows) * q.shape[-1] ** -0.5
    score = score.masked_fill(~visible.unsqueeze(1), float("-inf"))
    sink = sinks.double().view(1, -1, 1).expand(len(q), -1, 1)
    weight = torch.softmax(torch.cat((score, sink), -1), -1)[..., :-1]
    return torch.einsum("ths,tsd->thd", weight, rows).float()


@settings(max_examples=40)
@given(queries=st.integers(1, 20), heads=st.integers(1, 6), seed=st.integers(0, 9999))
def test_attention_equals_the_formula_and_each_query_alone(queries: int, heads: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(queries, heads, 80, generator=generator)
    shared = torch.randn(16, 80, generator=generator)
    own = torch.randn(queries, 5, 80, generator=generator)
    visible = torch.rand(queries, 21, generator=generator) < 0.5
    sinks = torch.randn(heads, generator=generator)

    def run(part: slice) -> Tensor:
        tiles = [Tile(shared, visible[part, :16]), Tile(own[part], visible[part, 16:])]
        return attend(q[part], tiles, sinks)

    found = run(slice(None))

    rows = torch.cat((shared.expand(queries, -1, -1), own), 1)
    torch.testing.assert_close(found, _plain(q, rows, visible, sinks), rtol=2e-5, atol=2e-6)
    assert all(torch.equal(found[at], run(slice(at, at + 1))[0]) for at in range(queries))


def test_a_tile_that_a_query_cannot_see_changes_no_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    q, rows = torch.randn(3, 4, 80, generator=generator), torch.randn(16, 80, generator=generator)
    sinks = torch.zeros(4)
    hidden = Tile(torch.randn(8, 80, generator=generator), torch.zeros(3, 8).bool())

    assert torch.equal(attend(q, [Tile(rows, None)], sinks), attend(q, [Tile(rows, None), hidden], sinks))
