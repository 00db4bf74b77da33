"""The smallest model that still has every mechanism; small windows and ratios bring the edges near."""

from __future__ import annotations

from dataclasses import replace

from fixtures.tiny.spec import TINY

SMALL = replace(
    TINY,
    name="Small",
    n_layer=4,
    vocab=320,
    context_length=4096,
    n_head=4,
    head_dim=80,
    rope_dim=16,
    q_rank=32,
    o_groups=2,
    o_rank=32,
    window=8,
    ratios=(0, 4, 8, 4),
    index_heads=2,
    index_dim=32,
    index_topk=5,
    n_expert=4,
    n_expert_used=2,
    swiglu_limits=(10.0,) * 4,
    n_hash_layer=1,
    hc_count=3,
    hc_iterations=3,
    yarn_original_context=64,
)
