"""Weights held in a dictionary under production names, for graphs that come from no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from engine.gguf.quants import QuantType


@dataclass(frozen=True, slots=True)
class DictSource:
    """Float32 tensors (and int tables) by production name."""

    tensors: Mapping[str, Tensor]

    def tensor(self, name: str) -> Tensor:
        """The tensor itself."""
        return self.tensors[name]

    def type(self, name: str) -> QuantType:
        """Always plain float32."""
        return QuantType.F32 if name in self.tensors else QuantType.I32
