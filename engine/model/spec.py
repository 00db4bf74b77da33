"""The shape of a model: every number the graph needs, read from the file and checked, never assumed.

Knows nothing of weights, caches or devices.  Names follow the published configuration of DeepSeek-V4.
"""

from __future__ import annotations

from dataclasses import dataclass

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
