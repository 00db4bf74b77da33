"""The replaceable operations have the bits of the twins that define them."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.ref import rope, rounding
from engine.kernels.ref.rounding import Numerics
from engine.model.ops import Ops
from engine.tests.small import SMALL


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("heads", [None, 3])
def test_turning_in_place_has_the_bits_of_the_rotation_twin(heads: int | None, inverse: bool) -> None:
    random = torch.Generator().manual_seed(1)
    shape = (20, 80) if heads is None else (20, heads, 80)
    x = torch.randn(*shape, generator=random)
    positions = torch.arange(20) * 37
    ops = Ops(SMALL, Numerics())
    yarn = rope.Yarn(
        SMALL.yarn_factor, SMALL.yarn_original_context, SMALL.yarn_beta_fast, SMALL.yarn_beta_slow
    )
    freqs = rope.frequencies(SMALL.rope_dim, SMALL.compress_rope_base, yarn=yarn)

    wanted = rope.rotate(x, positions if heads is None else positions.unsqueeze(1), freqs, inverse=inverse)

    assert torch.equal(wanted, ops.rotation(positions, scaled=True).turn(x.clone(), inverse=inverse))


def test_index_vectors_are_spread_and_rounded_like_the_twins() -> None:
    x = torch.randn(500, 2, SMALL.index_dim, generator=torch.Generator().manual_seed(2))
    found = Ops(SMALL, Numerics()).index(x)
    wanted = rounding.fp4_round(rounding.hadamard(x))

    # The sum's order differs, so a value on a rounding edge may fall the other way.
    assert 0.999 <= (found == wanted).float().mean().item()
    assert torch.equal(found, rounding.fp4_round(found))


def test_stored_rows_carry_both_roundings() -> None:
    rows = torch.randn(50, SMALL.head_dim, generator=torch.Generator().manual_seed(3))
    found = Ops(SMALL, Numerics()).store(rows, "window")

    assert torch.equal(rounding.e4m3_round(rows, 64)[:, :64], found[:, :64])
    assert torch.equal(rows[:, 64:].bfloat16().float(), found[:, 64:])
