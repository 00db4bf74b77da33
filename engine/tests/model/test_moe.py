"""Expert tables that a damaged file could carry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile
from engine.gguf.quants import QuantType
from engine.kernels.ref.rounding import Numerics
from engine.model.moe import Experts
from engine.model.ops import Ops
from engine.tests.small import SMALL
from engine.weights.local import LocalWeights


class Damaged(LocalWeights):
    """A file whose table names an expert that does not exist."""

    def tensor(self, name: str) -> Tensor:
        found = super().tensor(name)
        if name.endswith("tid2eid.weight"):
            found[7, 1] = 4
        return found

    def type(self, name: str) -> QuantType:
        return super().type(name)


def test_a_table_that_names_no_expert_is_refused(small_path: str) -> None:
    with pytest.raises(ModelFileError, match=r"ffn_gate_tid2eid.* from 0 to 4, allowed are 0 to 3"):
        Experts(Ops(SMALL, Numerics()), Damaged(GGUFFile.open(small_path)), 0)


def test_a_lone_row_has_the_bits_of_a_row_among_many(small_path: str) -> None:
    ops, source = Ops(SMALL, Numerics()), LocalWeights(GGUFFile.open(small_path))
    h = torch.randn(40, SMALL.hidden, generator=torch.Generator().manual_seed(1))
    ids = torch.arange(40)
    for layer in (0, 1):
        experts = Experts(ops, source, layer)
        together = experts(h, ids, 40)
        alone = [experts(h[at : at + 1].expand(4, -1), ids[at : at + 1].expand(4), 1)[0] for at in range(40)]

        assert torch.equal(together, torch.stack(alone))
