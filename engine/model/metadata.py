"""The metadata keys of a deepseek4 file: their names, types and ranges (docs/model.md, 11.1).

Knows the keys one by one; how the numbers relate to each other is the specification's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NoReturn

from engine.errors import ModelFileError

ARCHITECTURE = "deepseek4"
PREFIX = "deepseek4."
VALUE_LENGTH = PREFIX + "attention.value_length"
_SQRT_SOFTPLUS = 4  # expert_gating_func of sqrt(softplus(logit))

Kind = Literal["text", "int", "float", "ints", "floats"]


@dataclass(frozen=True, slots=True)
class Key:
    """One metadata key: its full name, its type and, for numbers, the allowed range (both ends allowed)."""

    name: str
    kind: Kind
    low: float = 0
    high: float = math.inf


def _key(name: str, kind: Kind, low: float = 0, high: float = math.inf) -> Key:
    return Key(PREFIX + name, kind, low, high)


FIELDS: Mapping[str, Key] = {
    "name": Key("general.name", "text"),
    "n_layer": _key("block_count", "int", 1, 1024),
    "hidden": _key("embedding_length", "int", 32, 1 << 20),
    "vocab": _key("vocab_size", "int", 1, 1 << 24),
    "context_length": _key("context_length", "int", 1, 1 << 24),
    "n_head": _key("attention.head_count", "int", 1, 4096),
    "head_dim": _key("attention.key_length", "int", 66, 1 << 16),
    "rope_dim": _key("rope.dimension_count", "int", 2, 1 << 16),
    "q_rank": _key("attention.q_lora_rank", "int", 1, 1 << 20),
    "o_groups": _key("attention.output_group_count", "int", 1, 4096),
    "o_rank": _key("attention.output_lora_rank", "int", 1, 1 << 20),
    "window": _key("attention.sliding_window", "int", 1, 4096),
    "ratios": _key("attention.compress_ratios", "ints"),
    "index_heads": _key("attention.indexer.head_count", "int", 1, 4096),
    "index_dim": _key("attention.indexer.key_length", "int", 32, 1 << 16),
    "index_topk": _key("attention.indexer.top_k", "int", 1, 4096),
    "n_expert": _key("expert_count", "int", 1, 1 << 16),
    "n_expert_used": _key("expert_used_count", "int", 1, 1 << 16),
    "n_expert_shared": _key("expert_shared_count", "int", 1, 1),
    "expert_width": _key("expert_feed_forward_length", "int", 1, 1 << 20),
    "expert_scale": _key("expert_weights_scale", "float", 0, 1e6),
    "swiglu_limits": _key("swiglu_clamp_exp", "floats"),
    "n_hash_layer": _key("hash_layer_count", "int", 0, 1024),
    "hc_count": _key("hyper_connection.count", "int", 1, 64),
    "hc_iterations": _key("hyper_connection.sinkhorn_iterations", "int", 1, 1000),
    "hc_eps": _key("hyper_connection.epsilon", "float", 0, 1),
    "rms_eps": _key("attention.layer_norm_rms_epsilon", "float", 0, 1),
    "rope_base": _key("rope.freq_base", "float", 1.001, 1e12),
    "compress_rope_base": _key("attention.compress_rope_freq_base", "float", 1.001, 1e12),
    "yarn_factor": _key("rope.scaling.factor", "float", 1, 1e6),
    "yarn_original_context": _key("rope.scaling.original_context_length", "int", 1, 1 << 24),
    "yarn_beta_fast": _key("rope.scaling.yarn_beta_fast", "float", 1e-6, 1e6),
    "yarn_beta_slow": _key("rope.scaling.yarn_beta_slow", "float", 1e-6, 1e6),
}


def fixed_values() -> dict[str, object]:
    """Keys with one allowed value, because the architecture has no other."""
    return {
        "general.architecture": ARCHITECTURE,
        PREFIX + "attention.head_count_kv": 1,
        PREFIX + "expert_gating_func": _SQRT_SOFTPLUS,
        PREFIX + "expert_weights_norm": True,
        PREFIX + "rope.scaling.type": "yarn",
    }


def fail(key: str, found: object, allowed: str) -> NoReturn:
    """Raise the one error for a wrong metadata value."""
    name = key if key.startswith((PREFIX, "general.")) else PREFIX + key
    shown = repr(found) if len(repr(found)) <= 80 else repr(found)[:77] + "..."
    raise ModelFileError(f"metadata key {name}: found {shown}, allowed is {allowed}; use another model file")


def check_fixed(meta: Mapping[str, object]) -> None:
    """Check the architecture and every key that has one allowed value."""
    for name, allowed in fixed_values().items():
        found = _present(meta, name)
        if type(found) is not type(allowed) or found != allowed:
            fail(name, found, repr(allowed))
    for name in ("expert_group_count", "expert_group_used_count"):
        if meta.get(PREFIX + name, 0) != 0:
            fail(name, meta[PREFIX + name], "0 or no such key (experts have no groups)")


def read_fields(meta: Mapping[str, object]) -> dict[str, Any]:
    """All fields of the specification by field name, each checked for type and range."""
    layers = _value(meta, FIELDS["n_layer"])
    assert isinstance(layers, int)
    fields: dict[str, Any] = {field: _value(meta, key, layers) for field, key in FIELDS.items()}
    width = _value(meta, Key(VALUE_LENGTH, "int"))
    if width != fields["head_dim"]:
        fail(VALUE_LENGTH, width, f"the key length {fields['head_dim']} (one row is both key and value)")
    return fields


def _present(meta: Mapping[str, object], name: str) -> object:
    if name not in meta:
        raise ModelFileError(f"metadata key {name} is missing; this is not a complete {ARCHITECTURE} file")
    return meta[name]


def _value(meta: Mapping[str, object], key: Key, layers: int = 1) -> object:
    """The value of one key in the type the specification stores; arrays give their first `layers` items."""
    if key.kind == "text":
        text = meta.get(key.name, "")
        return text if isinstance(text, str) else fail(key.name, text, "a string")
    found = _present(meta, key.name)
    if key.kind not in ("ints", "floats"):
        return _number(found, key)
    if isinstance(found, str) or not isinstance(found, Sequence):
        fail(key.name, found, "an array of numbers")
    if len(found) < layers:  # the published array has one more than layers, for the draft module
        fail(key.name, f"{len(found)} entries", f"at least one for each of {layers} layers")
    one = Key(key.name, "int" if key.kind == "ints" else "float", key.low, key.high)
    return tuple(_number(item, one) for item in islice(found, layers))


def _number(found: object, key: Key) -> int | float:
    whole = isinstance(found, int) and not isinstance(found, bool)
    if key.kind == "int":
        if not whole:
            fail(key.name, found, "a whole number")
    elif not whole and not isinstance(found, float):
        fail(key.name, found, "a number")
    assert isinstance(found, (int, float))
    if not (math.isfinite(found) and key.low <= found <= key.high):
        fail(key.name, found, f"a number from {key.low:g} to {key.high:g}")
    return int(found) if key.kind == "int" else float(found)
