"""Pooling of a window of tokens into one row (docs/model.md, 5).  Norm, rotation and rounding are elsewhere.

Ratio-4 windows overlap: a row pools the first-half channels of the window before it and the
second-half channels of its own window; all other ratios pool their own window alone.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pool(keys: Tensor, scores: Tensor) -> Tensor:
    """Softmax over slots per channel, weighted sum: [..., S, d] twice to [..., d]; -inf scores weigh 0.

    Written out, because a CPU's built-in softmax over slots cuts the channels by the number of threads and
    rows, and computes the last few of a cut with another formula.
    """
    weight = (scores - scores.amax(-2, keepdim=True)).exp_()
    return (weight / weight.sum(-2, keepdim=True) * keys).sum(-2)


def overlap_slots(windows: Tensor, previous: Tensor) -> Tensor:
    """Slots of overlapping windows: [..., W, r, 2 d] and the window before [..., r, 2 d] to [..., W, 2 r, d].

    `previous` is zero for keys and -inf for scores where nothing came before.
    """
    first, second = windows.chunk(2, -1)
    before = torch.cat((previous.chunk(2, -1)[0].unsqueeze(-3), first[..., :-1, :, :]), -3)
    return torch.cat((before, second), -2)
