"""The published shapes of the family and the bytes of their 2-bit recipe.

For answering what fits before anything is downloaded.  Never used to run a file: its own numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.gguf.quants import QuantType, row_bytes
from engine.model.spec import ModelSpec
from engine.model.tensors import Expected, expected

_FLASH = ModelSpec(
    name="DeepSeek V4 Flash",
    n_layer=43,
    hidden=4096,
    vocab=129280,
    context_length=1048576,
    n_head=64,
    head_dim=512,
    rope_dim=64,
    q_rank=1024,
    o_groups=8,
    o_rank=1024,
    window=128,
    ratios=(0, 0, *(4, 128) * 20, 4),
    index_heads=64,
    index_dim=128,
    index_topk=512,
    n_expert=256,
    n_expert_used=6,
    n_expert_shared=1,
    expert_width=2048,
    expert_scale=1.5,
    swiglu_limits=(10.0,) * 43,
    n_hash_layer=3,
    hc_count=4,
    hc_iterations=20,
    hc_eps=1e-6,
    rms_eps=1e-6,
    rope_base=10000.0,
    compress_rope_base=160000.0,
    yarn_factor=16.0,
    yarn_original_context=65536,
    yarn_beta_fast=32.0,
    yarn_beta_slow=1.0,
)
_PRO = replace(
    _FLASH,
    name="DeepSeek V4 Pro",
    n_layer=61,
    hidden=7168,
    n_head=128,
    q_rank=1536,
    o_groups=16,
    ratios=(128, 128, *(4, 128) * 29, 4),
    index_topk=1024,
    n_expert=384,
    expert_width=3072,
    expert_scale=2.5,
    swiglu_limits=(10.0,) * 61,
)
SPECS: Mapping[str, ModelSpec] = {"v4-flash": _FLASH, "v4-pro": _PRO}

_HALF = ("token_embd", "hc_", "ffn_gate_inp", "compressor", "indexer")  # kept in F16
_QUANTIZED = {
    "ffn_gate_exps": QuantType.IQ2_XXS,
    "ffn_up_exps": QuantType.IQ2_XXS,
    "ffn_down_exps": QuantType.Q2_K,
}


def two_bit_tensors(spec: ModelSpec) -> Iterator[tuple[str, QuantType, int]]:
    """Name, block format and bytes of every tensor in the 2-bit recipe."""
    for tensor in expected(spec):
        kind = recipe_type(tensor)
        rows = 1
        for size in tensor.shape[:-1]:
            rows *= size
        yield tensor.name, kind, rows * row_bytes(kind, tensor.shape[-1])


def recipe_type(tensor: Expected) -> QuantType:
    """2-bit routed experts, 8-bit attention, shared experts and output, the rest as precise as it must be."""
    if len(tensor.types) == 1:
        return tensor.types[0]
    for part, kind in _QUANTIZED.items():
        if part in tensor.name:
            return kind
    return QuantType.F16 if any(part in tensor.name for part in _HALF) else QuantType.Q8_0
