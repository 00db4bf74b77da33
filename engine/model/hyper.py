"""One hyper-connection site: reads a sub-layer's input from the residual streams, writes its output back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.kernels.ref import hyper
from engine.kernels.ref.lanes import constant, sigmoid
from engine.kernels.ref.linear import mixed
from engine.kernels.ref.norm import rms_norm
from engine.kernels.ref.sinkhorn import balance
from engine.model.ops import Ops, TensorSource, joined


class Site:
    """The hyper-connection around attention or experts of one layer, with the sub-layer's norm."""

    def __init__(self, ops: Ops, source: TensorSource, layer: int, name: str) -> None:
        prefix, n = f"blk.{layer}.hc_{name}_", ops.spec.hc_count
        self._ops = ops
        self._fn = joined(source, [prefix + "fn.weight"], rounded=True)
        scale = source.tensor(prefix + "scale.weight")
        self._scale = torch.cat((scale[0].expand(n), scale[1].expand(n), scale[2].expand(n * n)))
        self._base = source.tensor(prefix + "base.weight")
        self._norm = source.tensor(f"blk.{layer}.{name}_norm.weight")

    def __call__(self, streams: Tensor, sub_layer: Callable[[Tensor], Tensor]) -> Tensor:
        """Streams [T, n, C] after the sub-layer [T, C] -> [T, C]; `hyper` states the mathematics."""
        spec, n = self._ops.spec, self._ops.spec.hc_count
        z = self._ops.linear(rms_norm(streams.flatten(1), None, spec.rms_eps), self._fn)
        z.mul_(self._scale).add_(self._base)
        gates, logits = z.split((2 * n, n * n), 1)
        pre, post = sigmoid(gates).unsqueeze(1).chunk(2, -1)  # [T, 1, n] each
        comb = balance(logits.reshape(-1, n, n), spec.hc_iterations, spec.hc_eps)
        entry = mixed(pre + constant(spec.hc_eps), streams).squeeze(1)
        y = sub_layer(rms_norm(entry, self._norm, spec.rms_eps))
        share = torch.cat((post * constant(2.0), comb), 1).transpose(1, 2)  # [T, n, 1 + n]
        return mixed(share, torch.cat((y.unsqueeze(1), streams), 1))


class Head:
    """The output head: mixes the streams into one row, norms it and projects to the vocabulary."""

    def __init__(self, ops: Ops, source: TensorSource) -> None:
        self._ops = ops
        self._fn = joined(source, ["output_hc_fn.weight"])
        self._scale = source.tensor("output_hc_scale.weight")
        self._base = source.tensor("output_hc_base.weight")
        self._norm = source.tensor("output_norm.weight")
        self._output = joined(source, ["output.weight"])

    def __call__(self, streams: Tensor) -> Tensor:
        """Logits [T, V] of streams [T, n, C]."""
        spec = self._ops.spec
        z = self._ops.linear(rms_norm(streams.flatten(1), None, spec.rms_eps), self._fn)
        pre = hyper.head_mix(z, self._scale, self._base, spec.hc_eps)
        x = rms_norm(mixed(pre.unsqueeze(1), streams).squeeze(1), self._norm, spec.rms_eps)
        return self._ops.linear(x, self._output)
