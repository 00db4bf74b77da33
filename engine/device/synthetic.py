"""A model of a published shape with random contents, made in place in seconds: for speed, never for answers.

Names, shapes and block formats are those of the 2-bit recipe; scales are such that activations keep their
size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from engine.device.progress import Bar
from engine.errors import SettingError
from engine.gguf.file import TensorInfo
from engine.gguf.quants import Bytes, QuantType, row_bytes
from engine.gguf.write import lay_out, write
from engine.model.published import SPECS, recipe_type
from engine.model.spec import ModelSpec
from engine.model.tensors import Expected, expected

# Root mean square of a value whose block has scale 1: codes -127..127; magnitude, minor scale and sign; code,
# scale and minimum of random bytes.
_SPREAD = {QuantType.Q8_0: 73.0, QuantType.IQ2_XXS: 53.0, QuantType.Q2_K: 13.9}
# Bytes of a block, and where its F16 scales stand with their share.  A Q2_K value is d (scale code) less
# m minimum, of which random bytes make 11.25 d - 7.5 m: only with m = 1.5 d is a matrix's mean zero.  With a
# mean all tokens gather in one direction, the router sends them to the same experts, and a step of many rows
# reads too few.
_HALVES = {
    QuantType.Q8_0: (34, {0: 1.0}),
    QuantType.IQ2_XXS: (66, {0: 1.0}),
    QuantType.Q2_K: (84, {80: 1.0, 82: 1.5}),
}


STAGED = 64 << 20  # bytes of a tensor that are on their way to a file at a time


def shortened(spec: ModelSpec, layers: int) -> ModelSpec:
    """The same model with fewer layers."""
    return replace(
        spec,
        n_layer=layers,
        ratios=spec.ratios[:layers],
        swiglu_limits=spec.swiglu_limits[:layers],
        n_hash_layer=min(spec.n_hash_layer, layers),
    )


def published(name: str, layers: int | None) -> ModelSpec:
    """A published shape, or its first layers; SettingError for another name or number."""
    if name not in SPECS:
        raise SettingError(f"--synthetic is {name!r}; allowed are {', '.join(SPECS)}")
    spec = SPECS[name]
    if layers is not None and not 1 <= layers <= spec.n_layer:
        raise SettingError(f"--layers is {layers}; allowed is 1 to {spec.n_layer}")
    return shortened(spec, layers or spec.n_layer)


def write_model(path: Path, spec: ModelSpec, shown: TextIO, *, device: torch.device | None = None) -> None:
    """Write a synthetic model as a model file without a vocabulary, with a bar on `shown`.

    Every tensor is made on the device, by default an accelerator where there is one, and written before the
    next; another kind of device makes other numbers.
    SettingError for a folder that does not exist, EngineError with the numbers where the disk lacks room.
    """
    if (path.exists() and not path.is_file()) or not path.parent.is_dir():
        raise SettingError(f"--write is {str(path)!r}; allowed is a file in a folder that exists")
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = Synthetic(spec, device)
    entries = [(tensor.name, tensor.shape, source.type(tensor.name)) for tensor in source.tensors()]
    layout = lay_out(spec.to_metadata(), entries)
    bar = Bar(path.name, layout.data_bytes, shown)

    def data(info: TensorInfo) -> Iterator[Bytes]:
        for piece in source.pieces(info.name):
            yield piece
            bar.add(len(piece))

    with torch.inference_mode():
        write(path, layout, data)


class Synthetic:
    """Random tensors of a model, each from its own seed, so that any one can be made again."""

    def __init__(self, spec: ModelSpec, device: torch.device, seed: int = 0) -> None:
        self._spec = spec
        self._device = device
        self._tensors = {tensor.name: tensor for tensor in expected(spec)}
        self._seeds = {name: seed + number for number, name in enumerate(self._tensors)}

    def tensors(self) -> Iterable[Expected]:
        """All tensors of the model."""
        return self._tensors.values()

    def type(self, name: str) -> QuantType:
        """The recipe's block format."""
        return recipe_type(self._tensors[name])

    def raw(self, name: str) -> Tensor:
        """Bytes as a file holds them, on the device; plain types as values."""
        tensor, kind = self._tensors[name], self.type(name)
        random = torch.Generator(self._device).manual_seed(self._seeds[name])
        if kind is QuantType.I32:
            return self._experts(tensor, random)
        if kind in _SPREAD:
            return self._blocks(tensor, kind, random)
        values = torch.randn(tensor.shape, generator=random, device=self._device)
        values = values * self._deviation(tensor) + (1.0 if "norm" in name else 0.0)
        return values.half() if kind is QuantType.F16 else values

    def pieces(self, name: str) -> Iterator[Bytes]:
        """The same bytes on the host, piece by piece; each is gone when the next is asked for."""
        data = self.raw(name).flatten().view(torch.uint8)
        stage = torch.empty(min(STAGED, len(data)), dtype=torch.uint8, pin_memory=data.is_cuda)
        for part in data.split(STAGED):
            piece = stage[: len(part)].copy_(part)
            yield piece.numpy()

    def _deviation(self, tensor: Expected) -> float:
        if "token_embd" in tensor.name:
            return 1.0
        if len(tensor.shape) == 1 or "_ape" in tensor.name:
            return 0.1
        return float(tensor.shape[-1] ** -0.5)

    def _experts(self, tensor: Expected, random: torch.Generator) -> Tensor:
        """Distinct experts for every token."""
        scores = torch.rand(tensor.shape[0], self._spec.n_expert, generator=random, device=self._device)
        return scores.topk(tensor.shape[1], dim=1).indices.int()

    def _blocks(self, tensor: Expected, kind: QuantType, random: torch.Generator) -> Tensor:
        shape = (*tensor.shape[:-1], row_bytes(kind, tensor.shape[-1]))
        raw = torch.empty(shape, dtype=torch.uint8, device=self._device)
        words = raw.view(-1)[: raw.numel() // 8 * 8].view(torch.int64)
        words.random_(-(2**63), None, generator=random)
        raw.view(-1)[raw.numel() // 8 * 8 :] = 7
        size, places = _HALVES[kind]
        blocks = raw.unflatten(-1, (-1, size))
        scale = self._deviation(tensor) / _SPREAD[kind]
        for at, share in places.items():
            value = torch.full((1,), scale * share, dtype=torch.float16, device=self._device)
            blocks[..., at : at + 2] = value.view(torch.uint8)
        return raw
