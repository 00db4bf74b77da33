"""Packed layouts hold exactly the bits of the file's blocks, and mean the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.gguf import quants
from engine.gguf.quants import QuantType, decode, row_bytes
from engine.kernels import layouts

KINDS = [
    pytest.param(QuantType.Q8_0, layouts.split_q8, layouts.join_q8, layouts.decode_q8, id="q8_0"),
    pytest.param(QuantType.IQ2_XXS, layouts.split_iq2, layouts.join_iq2, layouts.decode_iq2, id="iq2_xxs"),
    pytest.param(QuantType.Q2_K, layouts.split_q2, layouts.join_q2, layouts.decode_q2, id="q2_k"),
]


def random_blocks(kind: QuantType, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Any bytes are valid blocks; scales are kept finite so that values compare."""
    rng = np.random.default_rng(seed)
    size = row_bytes(kind, shape[-1])
    raw = rng.integers(0, 256, (*shape[:-1], size), dtype=np.uint8)
    places = {QuantType.Q8_0: (34, [0]), QuantType.IQ2_XXS: (66, [0]), QuantType.Q2_K: (84, [80, 82])}
    stride, halves = places[kind]
    for at in halves:
        values = rng.normal(size=(*shape[:-1], size // stride)).astype(np.float16)
        raw.reshape(*shape[:-1], -1, stride)[..., at : at + 2] = values[..., None].view(np.uint8)
    return torch.from_numpy(raw)


@pytest.mark.parametrize(("kind", "split", "join", "values"), KINDS)
@pytest.mark.parametrize("shape", [(16, 256), (48, 1024), (2, 32, 512)])
def test_planes_give_back_the_bytes_and_the_values(
    kind: QuantType,
    split: Callable[[torch.Tensor], Any],
    join: Callable[[Any], torch.Tensor],
    values: Callable[[Any], torch.Tensor],
    shape: tuple[int, ...],
) -> None:
    raw = random_blocks(kind, shape, seed=len(shape))

    planes = split(raw)

    assert torch.equal(raw, join(planes))
    assert torch.equal(torch.from_numpy(decode(raw.flatten().numpy(), kind, shape)), values(planes))


def test_selectors_name_the_codebook_and_its_signs() -> None:
    books = layouts.codebook_selectors().long() & 0xFFFFFFFF
    signs = layouts.sign_selectors().long() & 0xFFFFFFFF
    table = torch.tensor([8, 25, 43, 0, -8, -25, -43, 0])
    kinds = (books[:, None, None] ^ signs[None, :, None]) >> torch.arange(0, 32, 4) & 15
    words = torch.from_numpy(quants.iq2_codewords().copy())
    plus = torch.from_numpy(quants.iq2_signs().copy())

    assert torch.equal((words[:, None] * plus[None]).long(), table[kinds])


def test_tiles_of_halves_give_back_the_values() -> None:
    matrix = torch.randn(3, 32, 512, generator=torch.Generator().manual_seed(1)).half()

    assert torch.equal(matrix, layouts.join_half(layouts.split_half(matrix)))
