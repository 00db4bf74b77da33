"""The mixture of experts of one layer: a router by table or by score, routed experts, one shared expert."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.kernels.ref import moe
from engine.kernels.ref.linear import whole
from engine.model.ops import Matrix, Ops, TensorSource, experts, joined


class Experts:
    """Routed and shared experts of one layer."""

    def __init__(self, ops: Ops, source: TensorSource, layer: int) -> None:
        prefix = f"blk.{layer}.ffn_"
        self._ops = ops
        self._limit = ops.spec.swiglu_limits[layer]
        self._router = joined(source, [prefix + "gate_inp.weight"])
        self._hashed = layer < ops.spec.n_hash_layer
        if self._hashed:
            self._table = _expert_table(source, prefix + "gate_tid2eid.weight", ops.spec.n_expert)
        else:
            self._bias = source.tensor(f"blk.{layer}.exp_probs_b.bias")
        self._shared_in = joined(source, [prefix + "gate_shexp.weight", prefix + "up_shexp.weight"])
        self._shared_out = joined(source, [prefix + "down_shexp.weight"])
        self._enter = experts(source, [prefix + "gate_exps.weight", prefix + "up_exps.weight"])
        self._leave = experts(source, [prefix + "down_exps.weight"])

    def __call__(self, h: Tensor, ids: Tensor, rows: int) -> Tensor:
        """Output [T, C] of normed rows [T, C] with token ids [T]; only the first `rows` are routed."""
        score = moe.scores(self._ops.linear(h, self._router)[:rows])
        chosen = self._choose(score, ids[:rows])
        weight = moe.weights(score, chosen, self._ops.spec.expert_scale)
        if rows == 1:
            return self._single(h, chosen, weight)
        y = self._unit(h, None, self._shared_in, self._shared_out)
        y[:rows] += self._routed(h, chosen, weight)
        return y

    def _choose(self, score: Tensor, ids: Tensor) -> Tensor:
        """Chosen experts [T, K], ascending, so that a row's sum has one order."""
        if self._hashed:
            return self._table[ids]
        chosen = moe.choose(score, self._bias, self._ops.spec.n_expert_used)
        return chosen.sort(-1).values

    def _single(self, h: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
        """The whole layer for one real row and its idle companions: one gate for all its experts."""
        ids = chosen[0].tolist()
        enter = [self._shared_in, *(self._enter[expert] for expert in ids)]
        leave = [self._shared_out, *(self._leave[expert] for expert in ids)]
        gate, up = torch.chunk(torch.cat([self._ops.linear(h, matrix)[:1] for matrix in enter]), 2, -1)
        inner = moe.glu(gate, up, self._limit)
        inner[1:] *= weight.t()
        parts = [self._ops.linear(inner[at : at + 1], matrix) for at, matrix in enumerate(leave)]
        total = parts[1]
        for part in parts[2:]:
            total = total + part
        return (parts[0] + total).expand(len(h), -1)

    def _routed(self, h: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
        """Weighted sum of the chosen experts' outputs [T, C], each expert run once over its rows."""
        slots = chosen.flatten()  # slot t K + k is the k-th expert of row t
        order = slots.argsort(stable=True)
        counts = torch.bincount(slots, minlength=len(self._enter)).tolist()
        out = h.new_empty(len(slots), h.shape[1])
        flat = weight.flatten()
        start = 0
        for expert, count in enumerate(counts):
            if count:
                mine = order[start : start + count]
                start += count
                out[mine] = self._run(h, mine, flat, expert)
        parts = out.view(*chosen.shape, -1)
        total: Tensor = parts[:, 0]
        for k in range(1, chosen.shape[1]):
            total = total + parts[:, k]
        return total

    def _run(self, h: Tensor, slots: Tensor, weight: Tensor, expert: int) -> Tensor:
        """One expert over its slots; the slots are filled up to a whole row block before gathering."""
        count = len(slots)
        idle = whole(count) - count
        if idle:
            slots = torch.cat((slots, slots[:1].expand(idle)))
        rows = h[slots // self._ops.spec.n_expert_used]
        return self._unit(rows, weight[slots].unsqueeze(1), self._enter[expert], self._leave[expert])[:count]

    def _unit(self, h: Tensor, weight: Tensor | None, enter: Matrix, leave: Matrix) -> Tensor:
        """Gated unit; the routing weight enters before the last matmul, as in the official model."""
        gate, up = self._ops.linear(h, enter).chunk(2, -1)
        inner = moe.glu(gate, up, self._limit)
        return self._ops.linear(inner if weight is None else inner * weight, leave)


def _expert_table(source: TensorSource, name: str, n_expert: int) -> Tensor:
    """The table token -> experts as int64 [V, K], each row ascending; ids must name existing experts."""
    table = source.tensor(name).long()
    low, high = int(table.min()), int(table.max())
    if low < 0 or high >= n_expert:
        raise ModelFileError(
            f"tensor {name!r} holds expert ids from {low} to {high}, allowed are 0 to {n_expert - 1}; "
            "the file is damaged"
        )
    return table.sort(-1).values
