"""Expands IQ2_XXS experts to F16 on a card: `expand.cu`."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels import layouts
from engine.kernels.cuda.build import Long, load
from engine.kernels.layouts import IQ2, SUPER, TILE

WARPS = 8
BLOCKS = 8  # persistent blocks a multiprocessor


class Expander:
    """The codebook on one device, and the kernel that reads it."""

    def __init__(self, device: torch.device) -> None:
        index = device.index or 0
        self._module = load("expand.cu", index)
        self._blocks = torch.cuda.get_device_properties(index).multi_processor_count * BLOCKS
        self._book = layouts.codebook_selectors().to(device)
        self._sign = layouts.sign_selectors().to(device)

    def expand(self, stack: IQ2, first: int, out: Tensor) -> None:
        """`out` float16 [n, N, K]: experts `first` .. `first` + n - 1 of a stack, 64 times their values.

        Scale and value each round to float16 once.
        """
        words, scales = stack.words[first : first + len(out)], stack.scales[first : first + len(out)]
        if out.shape[1:] != (words.shape[1] * TILE, words.shape[2] * SUPER):
            raise ValueError(
                f"room for {tuple(out.shape)} values, the experts have planes {tuple(words.shape)}"
            )
        items = Long(len(out) * words.shape[1] * words.shape[2])
        arguments = (words, scales, out, words.shape[2], items, self._book, self._sign)
        self._module.launch("expand_iq2", (self._blocks, 1), WARPS * 32, *arguments)
