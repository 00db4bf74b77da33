"""The transformers library's DeepSeek-V4 with random weights, and the same weights under production names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.model.published import SPECS
from engine.model.spec import ModelSpec

SPEC = replace(
    SPECS["v4-flash"],
    name="oracle",
    n_layer=7,
    hidden=256,
    vocab=512,
    n_head=8,
    head_dim=128,
    q_rank=128,
    o_groups=2,
    o_rank=64,
    ratios=(0, 0, 4, 128, 4, 128, 4),
    index_heads=8,
    index_topk=32,
    n_expert=16,
    n_expert_used=4,
    expert_width=256,
    swiglu_limits=(10.0,) * 7,
)
_KINDS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
# Spread and mean of a parameter by the end of its name; the first match counts.
_SPREAD: tuple[tuple[tuple[str, ...], float, float], ...] = (
    (("norm.weight", "layernorm.weight"), 0.1, 1.0),
    (("sinks", "embed_tokens.weight"), 1.0, 0.0),
    (("position_bias", "base"), 0.5, 0.0),
    (("scale",), 0.2, 1.0),
    (("fn",), 0.05, 0.0),
    (("weights_proj.weight", "correction_bias"), 0.1, 0.0),
)
_LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight",
    "self_attn.q_a_norm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight",
    "self_attn.kv_proj.weight": "attn_kv.weight",
    "self_attn.kv_norm.weight": "attn_kv_a_norm.weight",
    "self_attn.sinks": "attn_sinks.weight",
    "self_attn.o_a_proj.weight": "attn_output_a.weight",
    "self_attn.o_b_proj.weight": "attn_output_b.weight",
    "self_attn.compressor.indexer.q_b_proj.weight": "indexer.attn_q_b.weight",
    "self_attn.compressor.indexer.scorer.weights_proj.weight": "indexer.proj.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.gate.tid2eid": "ffn_gate_tid2eid.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    **{
        f"{site}_hc.{part}": f"hc_{site}_{part}.weight"
        for site in ("attn", "ffn")
        for part in ("fn", "base", "scale")
    },
    **{
        f"self_attn.{inside}{theirs}": f"{ours}_{part}.weight"
        for inside, ours in (
            ("compressor.", "attn_compressor"),
            ("compressor.indexer.", "indexer_compressor"),
        )
        for theirs, part in (
            ("kv_proj.weight", "kv"),
            ("gate_proj.weight", "gate"),
            ("position_bias", "ape"),
            ("kv_norm.weight", "norm"),
        )
    },
}
_GLOBAL_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.hc_head.hc_fn": "output_hc_fn.weight",
    "model.hc_head.hc_base": "output_hc_base.weight",
    "model.hc_head.hc_scale": "output_hc_scale.weight",
    "lm_head.weight": "output.weight",
}


def build_library_model(spec: ModelSpec, seed: int) -> Any:
    """The library's model in float32 with every parameter, bias and table random."""
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

    config = DeepseekV4Config(**_config(spec))
    config._attn_implementation = "eager"
    model = DeepseekV4ForCausalLM(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("tid2eid"):
                value.copy_(_random_table(spec, generator))
            elif value.is_floating_point() and "rotary" not in name and "inv_freq" not in name:
                spread, mean = _spread(name, value)
                value.copy_(torch.randn(value.shape, generator=generator) * spread + mean)
    return model


def production_weights(model: Any) -> dict[str, Tensor]:
    """The library model's weights under the names of a model file."""
    found: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name in _GLOBAL_NAMES:
            found[_GLOBAL_NAMES[name]] = value
            continue
        _, _, layer, inside = name.split(".", 3)
        if inside == "mlp.experts.gate_up_proj":
            for part, half in zip(("gate", "up"), value.chunk(2, 1), strict=True):
                found[f"blk.{layer}.ffn_{part}_exps.weight"] = half
        else:
            found[f"blk.{layer}.{_LAYER_NAMES[inside]}"] = value
    return found


def _config(spec: ModelSpec) -> dict[str, Any]:
    yarn = {
        "rope_type": "yarn",
        "factor": spec.yarn_factor,
        "beta_fast": spec.yarn_beta_fast,
        "beta_slow": spec.yarn_beta_slow,
        "original_max_position_embeddings": spec.yarn_original_context,
    }
    return {
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "moe_intermediate_size": spec.expert_width,
        "num_hidden_layers": spec.n_layer,
        "num_attention_heads": spec.n_head,
        "num_key_value_heads": 1,
        "head_dim": spec.head_dim,
        "qk_rope_head_dim": spec.rope_dim,
        "q_lora_rank": spec.q_rank,
        "o_groups": spec.o_groups,
        "o_lora_rank": spec.o_rank,
        "n_routed_experts": spec.n_expert,
        "num_experts_per_tok": spec.n_expert_used,
        "n_shared_experts": 1,
        "scoring_func": "sqrtsoftplus",
        "norm_topk_prob": True,
        "routed_scaling_factor": spec.expert_scale,
        "swiglu_limit": spec.swiglu_limits[0],
        "sliding_window": spec.window,
        "index_n_heads": spec.index_heads,
        "index_head_dim": spec.index_dim,
        "index_topk": spec.index_topk,
        "hc_mult": spec.hc_count,
        "hc_sinkhorn_iters": spec.hc_iterations,
        "hc_eps": spec.hc_eps,
        "rms_norm_eps": spec.rms_eps,
        "rope_theta": spec.rope_base,
        "compress_rope_theta": spec.compress_rope_base,
        "max_position_embeddings": spec.context_length,
        "compress_rates": {_KINDS[4]: 4, _KINDS[128]: 128},
        "layer_types": [_KINDS[ratio] for ratio in spec.ratios],
        "mlp_layer_types": ["hash_moe" if at < spec.n_hash_layer else "moe" for at in range(spec.n_layer)],
        "rope_parameters": yarn,
        "num_nextn_predict_layers": 0,
        "tie_word_embeddings": False,
    }


def _spread(name: str, value: Tensor) -> tuple[float, float]:
    for ends, spread, mean in _SPREAD:
        if name.endswith(ends):
            return spread, mean
    return 1.0 / math.sqrt(value.shape[-1]), 0.0


def _random_table(spec: ModelSpec, generator: torch.Generator) -> Tensor:
    rows = [torch.randperm(spec.n_expert, generator=generator) for _ in range(spec.vocab)]
    return torch.stack(rows)[:, : spec.n_expert_used]
