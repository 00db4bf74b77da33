"""Weights of a model file, decoded to float32 on request, one tensor at a time.

Nothing is kept here: what the graph does not hold is free again.  Knows nothing of what tensors are for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.gguf.file import GGUFFile
from engine.gguf.quants import QuantType


class LocalWeights:
    """The tensors of one file by production name; ModelFileError for a name that it lacks."""

    __slots__ = ("_file",)

    def __init__(self, file: GGUFFile) -> None:
        self._file = file

    def tensor(self, name: str) -> Tensor:
        """A new tensor with the input dimension last: float32, or int32 for tables of ids."""
        return torch.from_numpy(self._file.array(name))

    def type(self, name: str) -> QuantType:
        """The block format it has in the file."""
        return self._file.tensors[name].type
