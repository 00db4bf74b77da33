"""Draws one token from logits with a counter-based stream.

The stream is keyed by (seed, position), so a draw depends on nothing else: not on neighbours, not on history.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.core import Logits, SamplingParams
from engine.errors import NumericsError

Weights = NDArray[np.float64]


def sample(logits: Logits, params: SamplingParams, *, seed: int, position: int) -> int:
    """The next token from `logits` [V]; minus infinity marks a token that cannot be drawn.

    Raises NumericsError when a logit is NaN or plus infinity or when no token is left.
    """
    greedy = int(np.argmax(logits))  # NaN wins argmax, so this one look finds it
    top = float(logits[greedy])
    if not np.isfinite(top):
        raise NumericsError(f"the largest logit is {top}; expected a finite number")
    if params.temperature == 0.0:
        return greedy
    weights = np.exp((logits.astype(np.float64) - top) / params.temperature)
    weights = _restrict(weights, logits, params)
    return _draw(weights, uniform(seed=seed, position=position))


def uniform(*, seed: int, position: int) -> float:
    """A number in [0, 1) that depends on (seed, position) alone."""
    stream = np.random.Philox(key=seed % 2**64, counter=position % 2**64)
    return float(stream.random_raw() >> 11) * 2.0**-53


def _restrict(weights: Weights, logits: Logits, params: SamplingParams) -> Weights:
    """Zero what top-k, top-p and min-p exclude; all look at the same distribution; ties keep low ids.

    The order is that of the logits: two of them can differ by too little for their weights to differ.
    """
    if params.min_p > 0.0:
        weights = np.where(weights < params.min_p, 0.0, weights)  # the largest weight is 1
    top_k = params.top_k if 0 < params.top_k < weights.size else 0
    if not top_k and params.top_p >= 1.0:
        return weights
    order = np.argsort(-logits, kind="stable")
    keep = top_k or weights.size
    if params.top_p < 1.0:
        mass = np.cumsum(weights[order])
        keep = min(keep, int(np.searchsorted(mass, params.top_p * mass[-1])) + 1)
    restricted = np.zeros_like(weights)
    restricted[order[:keep]] = weights[order[:keep]]
    return restricted


def _draw(weights: Weights, point: float) -> int:
    """The token whose share of the total weight covers `point`."""
    mass = np.cumsum(weights)
    index = int(np.searchsorted(mass, point * mass[-1], side="right"))
    last = int(np.flatnonzero(weights)[-1])  # rounding may carry the point past the end
    return min(index, last)
