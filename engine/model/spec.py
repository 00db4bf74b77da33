"""The shape of a model: every number the graph needs, read from the file and checked, never assumed.

Knows nothing of weights, caches or devices.  Names follow the published configuration of DeepSeek-V4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model import metadata
from engine.model.metadata import fail

SPARSE_RATIO = 4  # the architecture ties overlap and indexer to this ratio; other non-zero ratios are heavy


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """All hyper-parameters of one model; `ratios[l]` is 0 (window only), 4 (sparse) or larger (heavy)."""

    name: str
    n_layer: int
    hidden: int
    vocab: int
    context_length: int
    n_head: int
    head_dim: int
    rope_dim: int
    q_rank: int
    o_groups: int
    o_rank: int
    window: int
    ratios: tuple[int, ...]
    index_heads: int
    index_dim: int
    index_topk: int
    n_expert: int
    n_expert_used: int
    n_expert_shared: int
    expert_width: int
    expert_scale: float
    swiglu_limits: tuple[float, ...]
    n_hash_layer: int
    hc_count: int
    hc_iterations: int
    hc_eps: float
    rms_eps: float
    rope_base: float
    compress_rope_base: float
    yarn_factor: float
    yarn_original_context: int
    yarn_beta_fast: float
    yarn_beta_slow: float

    @property
    def nope_dim(self) -> int:
        """Width of the part of a row that carries no rotation."""
        return self.head_dim - self.rope_dim

    @property
    def hc_mix(self) -> int:
        """Rows of a hyper-connection projection: pre, post and the mixing matrix."""
        return (2 + self.hc_count) * self.hc_count

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> ModelSpec:
        """Read and check all hyper-parameters of a GGUF file's metadata (docs/model.md, 11.1).

        ModelFileError names the key, what was found and what is allowed.
        """
        metadata.check_fixed(meta)
        spec = cls(**metadata.read_fields(meta))
        _check_relations(spec)
        return spec

    def to_metadata(self) -> dict[str, object]:
        """The metadata of this model: int means u32, float f32, list of int or float an i32 or f32 array."""
        values = metadata.fixed_values()
        for field, key in metadata.FIELDS.items():
            value = getattr(self, field)
            values[key.name] = list(value) if isinstance(value, tuple) else value
        values[metadata.VALUE_LENGTH] = self.head_dim
        return values


def _check_relations(spec: ModelSpec) -> None:
    """Relations between the numbers that the graph's layout rests on."""
    if spec.rope_dim % 2 or spec.rope_dim >= spec.head_dim:
        fail("rope.dimension_count", spec.rope_dim, f"an even number below key_length {spec.head_dim}")
    if spec.nope_dim % 64:
        fail(
            "attention.key_length", spec.head_dim, f"a multiple of 64 plus the {spec.rope_dim} rotated values"
        )
    if spec.n_head % spec.o_groups:
        fail("attention.output_group_count", spec.o_groups, f"a divisor of head_count {spec.n_head}")
    if spec.index_dim & (spec.index_dim - 1) or spec.index_dim < max(spec.rope_dim, 32):
        fail(
            "attention.indexer.key_length",
            spec.index_dim,
            "a power of two, at least 32 and the rotated width",
        )
    if spec.n_expert_used > spec.n_expert:
        fail("expert_used_count", spec.n_expert_used, f"at most expert_count {spec.n_expert}")
    if spec.n_hash_layer > spec.n_layer:
        fail("hash_layer_count", spec.n_hash_layer, f"at most block_count {spec.n_layer}")
    for ratio in spec.ratios:
        if ratio != 0 and not SPARSE_RATIO <= ratio <= 65536:
            fail("attention.compress_ratios", ratio, "0 (window only), 4 (sparse) or up to 65536 (heavy)")
    for limit in spec.swiglu_limits:
        if not limit > 0:
            fail("swiglu_clamp_exp", limit, "positive numbers")
