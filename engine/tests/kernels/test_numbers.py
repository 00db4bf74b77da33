"""Scales inside Triton kernels are those of the twins, at the edges where a rounded quotient goes wrong."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from engine.kernels.ref import rounding
from engine.kernels.rows import E4M3_BLOCK, FP4_BLOCK, SCALE_BIAS
from engine.kernels.triton.numbers import e4m3_exponent, fp4_double, fp4_exponent, narrow


@triton.jit
def _exponents(peaks, e4m3, fp4, count: tl.constexpr):
    at = tl.arange(0, count)
    peak = tl.load(peaks + at)
    tl.store(e4m3 + at, e4m3_exponent(peak))
    tl.store(fp4 + at, fp4_exponent(peak))


@triton.jit
def _narrow(x, out, count: tl.constexpr):
    at = tl.arange(0, count)
    tl.store(out + at, narrow(tl.load(x + at)))


@triton.jit
def _doubles(out):
    code = tl.arange(0, 16)
    tl.store(out + code, fp4_double(code))


def edges() -> torch.Tensor:
    """Float32 [256]: tops of both formats times powers of two, both neighbours of each, zero and floors."""
    tops = torch.tensor([448.0, 6.0]).unsqueeze(1) * 2.0 ** torch.arange(-30, 12)
    exact = tops.flatten()
    below = torch.nextafter(exact, torch.zeros(()))
    above = torch.nextafter(exact, torch.full((), torch.inf))
    peaks = torch.cat((exact, below, above, torch.tensor([0.0, 1e-4, 1e-38])))
    return torch.cat((peaks, torch.ones(256 - len(peaks))))


def test_exponents_of_blocks_are_those_of_the_twin() -> None:
    peaks = edges()
    found = [torch.zeros(len(peaks), dtype=torch.int32) for _ in range(2)]
    _exponents[(1,)](peaks, *found, len(peaks))
    wanted = [
        codes(peaks.unsqueeze(1).repeat(1, block))[1].squeeze(1).int() - SCALE_BIAS
        for codes, block in ((rounding.e4m3_codes, E4M3_BLOCK), (rounding.fp4_codes, FP4_BLOCK))
    ]

    assert torch.equal(wanted[0], found[0])
    assert torch.equal(wanted[1], found[1])


@pytest.mark.parametrize("seed", [1, 2])
def test_bf16_is_the_nearest_with_ties_to_even(seed: int) -> None:
    x = torch.randn(256, generator=torch.Generator().manual_seed(seed))
    ties = (x.view(torch.int32) & -65536 | 0x8000).view(torch.float32)
    both = torch.cat((x, ties))
    out = torch.zeros(512, dtype=torch.bfloat16)
    _narrow[(1,)](both, out, 512)

    assert torch.equal(both.bfloat16(), out)


def test_every_fp4_code_is_twice_its_value() -> None:
    found = torch.full((16,), torch.nan)
    _doubles[(1,)](found)

    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    assert torch.equal(torch.cat((2 * sizes, -2 * sizes)), found)
