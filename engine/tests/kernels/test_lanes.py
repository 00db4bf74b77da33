"""Activation functions and the twins built on them keep a row's bits in any company."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.ref import compress, hyper, lanes, moe, rope, rounding
from engine.kernels.ref.norm import rms_norm

_FREQS = rope.frequencies(16, 160000.0)
_MIX = (torch.tensor([1.0, 0.9, 1.1]), torch.linspace(-1, 1, 15))

TWINS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "sigmoid": (lanes.sigmoid, (3,)),
    "silu": (lanes.silu, (5,)),
    "softplus": (lanes.softplus, (8,)),
    "rms_norm": (lambda x: rms_norm(x, None, 1e-6), (96,)),
    "rms_norm_of_heads": (lambda x: rms_norm(x, None, 1e-6), (4, 80)),
    "rotate": (lambda x: rope.rotate(x, torch.tensor(77), _FREQS), (80,)),
    "hyper_pre": (lambda x: hyper.mix(x, *_MIX, 3, 8, 1e-6)[0], (15,)),
    "hyper_post": (lambda x: hyper.mix(x, *_MIX, 3, 8, 1e-6)[1], (15,)),
    "hyper_matrix": (lambda x: hyper.mix(x, *_MIX, 3, 8, 1e-6)[2], (15,)),
    "head_mix": (lambda x: hyper.head_mix(x, _MIX[0][:1], _MIX[1][:3], 1e-6), (3,)),
    "pool": (lambda x: compress.pool(x, x.flip(-1)), (8, 80)),
    "router_scores": (moe.scores, (8,)),
    "glu": (lambda x: moe.glu(x, x.flip(-1), 10.0), (96,)),
    "e4m3_round": (lambda x: rounding.e4m3_round(x, 64), (80,)),
    "fp4_of_hadamard": (lambda x: rounding.fp4_round(rounding.hadamard(x)), (2, 32)),
}


@pytest.mark.parametrize("name", TWINS)
@given(rows=st.integers(1, 300), seed=st.integers(0, 999), data=st.data())
def test_a_row_has_the_same_bits_alone_and_among_others(
    name: str, rows: int, seed: int, data: st.DataObject
) -> None:
    twin, shape = TWINS[name]
    x = torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed)) * 3
    at = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(at + 1, rows))

    together = twin(x)

    assert torch.equal(together[at], twin(x[at : at + 1])[0])
    assert torch.equal(together[at:stop], twin(x[at:stop].clone()))


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("name", TWINS)
def test_bits_do_not_depend_on_the_number_of_threads(name: str, threads: int) -> None:
    twin, shape = TWINS[name]
    x = torch.randn(60, *shape, generator=torch.Generator().manual_seed(1)) * 3
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([twin(x[at : at + 1]) for at in range(60)])
        torch.set_num_threads(threads)
        together = [twin(x[:rows]) for rows in (1, 3, 7, 60)]
    finally:
        torch.set_num_threads(before)

    assert all(torch.equal(found, alone[: len(found)]) for found in together)


@pytest.mark.parametrize("name", ["sigmoid", "silu", "softplus"])
def test_the_seamless_form_agrees_with_the_built_in_function(name: str) -> None:
    x = torch.linspace(-100, 100, 20001)
    built_in: dict[str, Callable[[Tensor], Tensor]] = {
        "sigmoid": torch.sigmoid,
        "silu": torch.nn.functional.silu,
        "softplus": torch.nn.functional.softplus,
    }

    torch.testing.assert_close(getattr(lanes, name)(x), built_in[name](x), rtol=2e-6, atol=1e-7)
