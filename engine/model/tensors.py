"""The tensors a model of a given shape has: names, shapes and allowed block formats (docs/model.md, 11.2).

Checks a file against them before anything is decoded.  Knows nothing of what the tensors are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile, TensorInfo
from engine.gguf.quants import QuantType as Q
from engine.model.spec import SPARSE_RATIO, ModelSpec

_PLAIN = (Q.F32, Q.F16, Q.BF16)
_DENSE = (*_PLAIN, Q.Q8_0)
_EXPERT = (*_DENSE, Q.Q4_K, Q.Q2_K, Q.IQ2_XXS)


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor of the architecture; the shape has the input dimension last."""

    name: str
    shape: tuple[int, ...]
    types: tuple[Q, ...]


def expected(spec: ModelSpec) -> Iterator[Expected]:
    """Every tensor of the file, in the published order."""
    yield Expected("token_embd.weight", (spec.vocab, spec.hidden), _DENSE)
    yield Expected("output.weight", (spec.vocab, spec.hidden), _DENSE)
    yield Expected("output_norm.weight", (spec.hidden,), (Q.F32,))
    yield Expected("output_hc_fn.weight", (spec.hc_count, spec.hc_count * spec.hidden), _PLAIN)
    yield Expected("output_hc_base.weight", (spec.hc_count,), (Q.F32,))
    yield Expected("output_hc_scale.weight", (1,), (Q.F32,))
    for layer in range(spec.n_layer):
        for tensor in _layer(spec, layer):
            yield Expected(f"blk.{layer}.{tensor.name}", tensor.shape, tensor.types)


def check(file: GGUFFile, spec: ModelSpec) -> None:
    """Check that the file holds exactly these tensors; ModelFileError names the first that is wrong."""
    wanted = {tensor.name: tensor for tensor in expected(spec)}
    for tensor in wanted.values():
        info = file.tensors.get(tensor.name)
        if info is None:
            raise ModelFileError(_missing(file, tensor))
        _check_one(file, tensor, info)
    for name in file.tensors:
        if name not in wanted:
            raise ModelFileError(
                f"{file.path}: tensor {name!r} does not belong to a {spec.n_layer}-layer deepseek4 model "
                "with this metadata; use a file without it"
            )
    _check_pairs(file, spec)


def _missing(file: GGUFFile, tensor: Expected) -> str:
    near = get_close_matches(tensor.name, file.tensors, n=1)
    hint = f", the nearest name is {near[0]!r}" if near else ""
    return f"{file.path}: tensor {tensor.name!r} {tensor.shape} is missing{hint}; the file is incomplete"


def _check_one(file: GGUFFile, tensor: Expected, info: TensorInfo) -> None:
    if info.shape != tensor.shape:
        raise ModelFileError(
            f"{file.path}: tensor {tensor.name!r} has shape {info.shape} (input dimension last), "
            f"the metadata asks for {tensor.shape}; the file contradicts itself"
        )
    if info.type not in tensor.types:
        allowed = ", ".join(kind.name for kind in tensor.types)
        raise ModelFileError(
            f"{file.path}: tensor {tensor.name!r} has type {info.type.name}, allowed are {allowed}; "
            "convert the file with another recipe"
        )


def _check_pairs(file: GGUFFile, spec: ModelSpec) -> None:
    """Gate and up of a layer's experts run as one matrix, so they share a block format."""
    for layer in range(spec.n_layer):
        gate, up = (file.tensors[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up"))
        if gate.type != up.type:
            raise ModelFileError(
                f"{file.path}: {gate.name!r} has type {gate.type.name} but {up.name!r} has {up.type.name}; "
                "both must have the same type, convert the file again"
            )


def _layer(spec: ModelSpec, layer: int) -> Iterator[Expected]:
    for site in ("attn", "ffn"):
        yield Expected(f"hc_{site}_fn.weight", (spec.hc_mix, spec.hc_count * spec.hidden), _PLAIN)
        yield Expected(f"hc_{site}_base.weight", (spec.hc_mix,), (Q.F32,))
        yield Expected(f"hc_{site}_scale.weight", (3,), (Q.F32,))
        yield Expected(f"{site}_norm.weight", (spec.hidden,), (Q.F32,))
    yield from _attention(spec, spec.ratios[layer])
    yield from _experts(spec, hashed=layer < spec.n_hash_layer)


def _attention(spec: ModelSpec, ratio: int) -> Iterator[Expected]:
    heads_width, group_count = spec.n_head * spec.head_dim, spec.o_groups
    yield Expected("attn_q_a.weight", (spec.q_rank, spec.hidden), _DENSE)
    yield Expected("attn_q_a_norm.weight", (spec.q_rank,), (Q.F32,))
    yield Expected("attn_q_b.weight", (heads_width, spec.q_rank), _DENSE)
    yield Expected("attn_kv.weight", (spec.head_dim, spec.hidden), _DENSE)
    yield Expected("attn_kv_a_norm.weight", (spec.head_dim,), (Q.F32,))
    yield Expected("attn_sinks.weight", (spec.n_head,), (Q.F32,))
    yield Expected("attn_output_a.weight", (group_count * spec.o_rank, heads_width // group_count), _DENSE)
    yield Expected("attn_output_b.weight", (spec.hidden, group_count * spec.o_rank), _DENSE)
    if ratio:
        yield from _compressor("attn_compressor", spec.hidden, spec.head_dim, ratio)
    if ratio == SPARSE_RATIO:
        yield Expected("indexer.attn_q_b.weight", (spec.index_heads * spec.index_dim, spec.q_rank), _DENSE)
        yield Expected("indexer.proj.weight", (spec.index_heads, spec.hidden), _DENSE)
        yield from _compressor("indexer_compressor", spec.hidden, spec.index_dim, ratio)


def _compressor(prefix: str, hidden: int, width: int, ratio: int) -> Iterator[Expected]:
    channels = 2 * width if ratio == SPARSE_RATIO else width
    yield Expected(f"{prefix}_kv.weight", (channels, hidden), _DENSE)
    yield Expected(f"{prefix}_gate.weight", (channels, hidden), _DENSE)
    yield Expected(f"{prefix}_ape.weight", (ratio, channels), _PLAIN)
    yield Expected(f"{prefix}_norm.weight", (width,), (Q.F32,))


def _experts(spec: ModelSpec, *, hashed: bool) -> Iterator[Expected]:
    width, hidden, count = spec.expert_width, spec.hidden, spec.n_expert
    yield Expected("ffn_gate_inp.weight", (count, hidden), _PLAIN)
    if hashed:
        yield Expected("ffn_gate_tid2eid.weight", (spec.vocab, spec.n_expert_used), (Q.I32,))
    else:
        yield Expected("exp_probs_b.bias", (count,), (Q.F32,))
    yield Expected("ffn_gate_exps.weight", (count, width, hidden), _EXPERT)
    yield Expected("ffn_up_exps.weight", (count, width, hidden), _EXPERT)
    yield Expected("ffn_down_exps.weight", (count, hidden, width), _EXPERT)
    yield Expected("ffn_gate_shexp.weight", (width, hidden), _DENSE)
    yield Expected("ffn_up_shexp.weight", (width, hidden), _DENSE)
    yield Expected("ffn_down_shexp.weight", (hidden, width), _DENSE)
