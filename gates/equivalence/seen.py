"""What a run shows, as named arrays, and where two runs first differ in any bit.

Knows arrays; not what they mean, nor how they were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Seen = dict[str, NDArray[Any]]  # in the order in which a person looks: tokens, logits, then the state
LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element that is not the same on both sides, and how many there are in its array."""

    tensor: str
    index: tuple[int, ...]
    left: str
    right: str
    differing: int
    size: int

    def record(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self) | {"index": list(self.index)}


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs that must agree; `engaged` are the things without which they would agree for nothing.

    Empty where the two sides are computed by what the case itself says.
    """

    left: Seen
    right: Seen
    engaged: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """A case that cannot be run here, and why."""

    reason: str


def first_difference(left: Seen, right: Seen) -> Difference | None:
    """The first array, in order, that differs in a name, a shape, a type or a bit."""
    for name in dict.fromkeys([*left, *right]):
        one, other = left.get(name), right.get(name)
        if one is None or other is None:
            return Difference(name, (), _kind(one), _kind(other), 1, 1)
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return Difference(name, (), _kind(one), _kind(other), 1, 1)
        unlike = np.flatnonzero(_bits(one) != _bits(other))
        if len(unlike):
            where = tuple(int(place) for place in np.unravel_index(unlike[0], one.shape))
            return Difference(name, where, _shown(one[where]), _shown(other[where]), len(unlike), one.size)
    return None


def values(seen: Seen) -> int:
    """How many elements all arrays have."""
    return sum(array.size for array in seen.values())


def named(prefix: str, seen: Seen) -> Seen:
    """The same arrays under names that begin with a prefix."""
    return {f"{prefix} {name}": array for name, array in seen.items()}


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """An array flat, as whole numbers of its width: zeros of both signs and NaNs are what they are."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _kind(array: NDArray[Any] | None) -> str:
    return "missing" if array is None else f"{array.dtype} {list(array.shape)}"


def _shown(value: Any) -> str:
    """A value exactly: floats with all their digits and their bits."""
    if isinstance(value, np.floating):
        return f"{float(value)!r} (0x{value.tobytes()[::-1].hex()})"
    return str(value)
