"""Attention over the window and tiles against the plain formula, and the bits of a query among others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.ref.attention import Tile, Window, attend

WINDOW = 8


def _plain(q: Tensor, rows: Tensor, visible: Tensor, sinks: Tensor) -> Tensor:
    """Softmax over visible rows [T, S, D] and one sink a head, in float64."""
    q, rows = q.double(), rows.double()
    score = torch.einsum("thd,tsd->ths", q, rows) * q.shape[-1] ** -0.5
    score = score.masked_fill(~visible.unsqueeze(1), float("-inf"))
    sink = sinks.double().view(1, -1, 1).expand(len(q), -1, 1)
    weight = torch.softmax(torch.cat((score, sink), -1), -1)[..., :-1]
    return torch.einsum("ths,tsd->thd", weight, rows).float()


def _window(own: Tensor, before: Tensor | None, mine: Tensor) -> Window:
    return Window(own, before, mine, Window.shares_of(mine))


def _bias(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))


@settings(max_examples=40)
@given(
    queries=st.integers(1, WINDOW),
    place=st.integers(0, WINDOW - 1),
    first_block=st.booleans(),
    heads=st.integers(1, 6),
    seed=st.integers(0, 9999),
)
def test_attention_equals_the_formula_and_each_query_alone(
    queries: int, place: int, first_block: bool, heads: int, seed: int
) -> None:
    queries = min(queries, WINDOW - place)
    random = torch.Generator().manual_seed(seed)
    q = torch.randn(queries, heads, 80, generator=random)
    own, before = torch.randn(2, WINDOW, 80, generator=random)
    shared = torch.randn(16, 80, generator=random)
    picked = torch.randn(queries, 5, 80, generator=random)
    seen = torch.rand(queries, 21, generator=random) < 0.5
    sinks = torch.randn(heads, generator=random)
    mine = torch.arange(WINDOW) <= torch.arange(place, place + queries).unsqueeze(1)

    def run(part: slice) -> Tensor:
        window = _window(own, None if first_block else before, mine[part])
        tiles = [Tile(shared, _bias(seen[part, :16])), Tile(picked[part], _bias(seen[part, 16:]))]
        return attend(q[part], window, tiles, sinks)

    found = run(slice(None))

    near = torch.where(mine.unsqueeze(-1), own, before)
    rows = torch.cat((near, shared.expand(queries, -1, -1), picked), 1)
    visible = torch.cat((mine if first_block else torch.ones_like(mine), seen), 1)
    torch.testing.assert_close(found, _plain(q, rows, visible, sinks), rtol=2e-5, atol=2e-6)
    assert all(torch.equal(found[at], run(slice(at, at + 1))[0]) for at in range(queries))


def test_a_single_query_on_the_ring_itself_has_the_bits_of_two_blocks() -> None:
    random = torch.Generator().manual_seed(4)
    own, before = torch.randn(2, WINDOW, 80, generator=random)
    q, sinks = torch.randn(1, 4, 80, generator=random), torch.zeros(4)
    mine = torch.arange(WINDOW).unsqueeze(0) <= 2
    ring = torch.where(mine[0].unsqueeze(-1), own, before)

    on_ring = attend(q, _window(ring, ring, mine), [], sinks)

    assert torch.equal(attend(q, _window(own, before, mine), [], sinks), on_ring)


@pytest.mark.parametrize("picked", [False, True])
def test_a_tile_that_a_query_cannot_see_changes_no_bit(picked: bool) -> None:
    random = torch.Generator().manual_seed(3)
    q, sinks = torch.randn(3, 4, 80, generator=random), torch.zeros(4)
    window = _window(torch.randn(WINDOW, 80, generator=random), None, torch.ones(3, WINDOW).bool())
    shape = (3, 6, 80) if picked else (6, 80)
    hidden = Tile(torch.randn(*shape, generator=random), torch.full((3, 6), float("-inf")))

    assert torch.equal(attend(q, window, [], sinks), attend(q, window, [hidden], sinks))
