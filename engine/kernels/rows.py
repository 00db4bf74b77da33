"""How packed cache rows lie in memory: sizes, offsets and codes, for every kernel that reads or writes them.

An attention row is E4M3 codes, one scale byte a block, padding, then the rotated tail in BF16:

```
| nope codes, one byte each | scales | pad to 8 | tail, 2 bytes each, little endian | pad to 8 |
0                           scale_at            tail_at                                       nbytes
```

An index row is FP4 codes, two a byte, then one scale byte a block.  The value at an even place lies in the
low nibble, its neighbour in the high one.  Bit 3 of a nibble is the sign, then E2M1.

A scale byte is E8M0: `b` stands for 2**(b - 127), and 255 for a block that is not a number;
readers may count on scales below 2**113.  No torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Storage = Literal["packed", "wide"]  # rows as laid out here, or float32 of the same values

E4M3_BLOCK = 64  # values that share a scale
FP4_BLOCK = 32
SCALE_BIAS = 127
SCALE_NAN = 255
ALIGNMENT = 8  # bytes: a row may be read in words


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Bytes of an attention row of `nope` coded values, a multiple of 64, and `rope` BF16 values."""

    nope: int
    rope: int

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.nope + self.rope

    @property
    def scales(self) -> int:
        """Scale bytes."""
        return self.nope // E4M3_BLOCK

    @property
    def scale_at(self) -> int:
        """Offset of the scales."""
        return self.nope

    @property
    def tail_at(self) -> int:
        """Offset of the BF16 values."""
        return self.nope + _aligned(self.scales)

    @property
    def nbytes(self) -> int:
        """A whole row; 584 at 448 + 64 values."""
        return _aligned(self.tail_at + 2 * self.rope)


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """Bytes of an index row of `width` values, a multiple of 32."""

    width: int

    @property
    def scales(self) -> int:
        """Scale bytes."""
        return self.width // FP4_BLOCK

    @property
    def scale_at(self) -> int:
        """Offset of the scales."""
        return self.width // 2

    @property
    def nbytes(self) -> int:
        """A whole row; 68 at 128 values."""
        return self.scale_at + self.scales
