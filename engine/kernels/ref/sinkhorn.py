"""Sinkhorn normalisation of many small matrices at once, on the CPU.

Many tiny dependent steps: NumPy in place takes half the time that torch needs for one row and a third for
512 rows.  Only sums and quotients in a fixed order, so a row's bits do not depend on its neighbours.
`hyper.sinkhorn` is the same mathematics for training.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.kernels.ref import hyper

Floats = npt.NDArray[np.float32]


def balance(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Row softmax, then columns and rows normalised in turn, ending with columns: [T, n, n] to [T, n, n]."""
    if logits.device.type != "cpu":
        return hyper.sinkhorn(logits, iterations, eps)
    soft: Floats = torch.softmax(logits, -1).numpy()
    matrix = soft.transpose(1, 2, 0).copy()  # rows of the batch innermost: [n, n, T]
    floor = np.full(matrix.shape[2], eps, np.float32)
    matrix += floor
    by_row, by_column = list(matrix), list(matrix.swapaxes(0, 1))
    total = np.empty_like(by_row[0])
    standing = total[:, None]
    _divide(matrix, by_row, total, floor, total)
    for _ in range(iterations - 1):
        _divide(matrix, by_column, total, floor, standing)
        _divide(matrix, by_row, total, floor, total)
    return torch.from_numpy(matrix).permute(2, 0, 1)


def _divide(matrix: Floats, parts: list[Floats], total: Floats, floor: Floats, divisor: Floats) -> None:
    """Divide by the sum of the parts, in place; `divisor` is a view of `total` that broadcasts."""
    add = np.add
    add(parts[0], parts[1], total) if len(parts) > 1 else np.copyto(total, parts[0])
    for part in parts[2:]:
        add(total, part, total)
    add(total, floor, total)
    np.divide(matrix, divisor, matrix)
