"""What the tile sizes of chunk kernels depend on: whether a card's blocks may have much shared memory."""

from __future__ import annotations

import torch

ROOMY = (9, 10)  # compute capabilities (major) with 227 KiB for a block
SMALL_BYTES = 99 * 1024  # of a block on all other targets


def roomy(device: torch.device) -> bool:
    """Whether a block on this device may have more than 99 KiB of shared memory."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in ROOMY
