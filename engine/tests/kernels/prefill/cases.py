"""Shapes that every chunk kernel is tried at, odd ones on purpose, and the random inputs they start from."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

DEVICE = torch.device("cpu" if "TRITON_INTERPRET" in os.environ else "cuda")


@dataclass(frozen=True, slots=True)
class Case:
    """One model's numbers, cut down or whole."""

    name: str
    tokens: int
    hidden: int
    streams: int
    heads: int
    nope: int
    rope: int
    window: int
    index_heads: int
    index_width: int
    topk: int
    experts: int
    used: int
    inner: int

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.nope + self.rope


SMALL = (
    Case("odd", 7, 256, 3, 5, 64, 16, 9, 3, 32, 5, 5, 2, 256),
    Case("even", 18, 512, 4, 16, 128, 64, 16, 16, 64, 12, 8, 3, 256),
)
FULL = (
    *SMALL,
    Case("flash", 1000, 4096, 4, 64, 448, 64, 128, 64, 128, 512, 256, 6, 2048),
    Case("pro", 130, 7168, 4, 128, 448, 64, 128, 64, 128, 1024, 48, 6, 3072),
)


class Random:
    """Normal values and whole numbers from one seed, on the device."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, spread: float = 1.0) -> Tensor:
        """Float32 of the given deviation."""
        return (torch.randn(*shape, generator=self._generator) * spread).to(DEVICE)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """Int32 from low to high - 1."""
        return torch.randint(low, high, shape, generator=self._generator, dtype=torch.int32).to(DEVICE)

    def order(self, count: int) -> Tensor:
        """A permutation, int32."""
        return torch.randperm(count, generator=self._generator).int().to(DEVICE)

    def blocks(self, shape: tuple[int, ...], size: int, halves: dict[int, float]) -> Tensor:
        """Random bytes of blocks [..., n], flat, with float16 scales of about `halves` at those bytes."""
        raw = self.whole(0, 256, *shape, size).to(torch.uint8)
        for at, value in halves.items():
            scale = (self.normal(*shape, 1).abs() + 0.5) * value
            raw[..., at : at + 2] = scale.half().view(torch.uint8)
        return raw.flatten(-2)


def differing(found: Tensor, wanted: Tensor) -> float:
    """Share of elements that are not equal."""
    return float((found != wanted).float().mean())


def worst(found: Tensor, wanted: Tensor) -> float:
    """Largest difference over the largest wanted value."""
    return float((found.float() - wanted.float()).abs().max() / wanted.float().abs().max())
