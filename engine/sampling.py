"""Draws one token from logits with a counter-based stream.

The stream is keyed by (seed, position), so a draw depends on nothing else: not on neighbours, not on history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.core import Allowance, Generated, Logits, Request, SamplingParams
from engine.errors import NumericsError

Weights = NDArray[np.float64]
GREEDY = SamplingParams(temperature=0.0)
_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next tokens of one answer; `replaced` when a reluctant id was drawn and another taken."""

    tokens: tuple[Generated, ...]
    replaced: bool = False


def draw(logits: Logits, request: Request, allowance: Allowance, *, position: int) -> Drawn:
    """The next token from `logits` [V] within what request and rule allow, or the ids the rule forces.

    Raises NumericsError as `sample` does.
    """
    if allowance.forced:
        certain = None if request.top_logprobs is None else 0.0
        return Drawn(tuple(Generated(token, certain) for token in allowance.forced))
    allowed, banned = allowance.allowed, request.banned_ids
    masked = logits if allowed is None else np.where(allowed[: logits.size], logits, np.float32(-np.inf))
    params = GREEDY if allowance.greedy else request.sampling
    token = sample(masked, params, seed=request.seed, position=position, banned=banned)
    replaced = token in allowance.reluctant
    if replaced:
        banned = (*banned, *allowance.reluctant)
        token = sample(masked, GREEDY, seed=request.seed, position=position, banned=banned)
    if request.top_logprobs is None:
        return Drawn((Generated(token),), replaced)
    return Drawn((_with_probabilities(token, logits, request.top_logprobs),), replaced)


def _with_probabilities(token: int, logits: Logits, count: int) -> Generated:
    """The token with its probability and the `count` likeliest ids, likeliest and lowest first."""
    exact = logits.astype(np.float64)
    top = float(exact.max())
    exact -= top + np.log(np.exp(exact - top).sum())
    near = np.argpartition(-exact, min(count, exact.size - 1))[:count]
    order = near[np.lexsort((near, -exact[near]))]
    return Generated(token, float(exact[token]), tuple((int(index), float(exact[index])) for index in order))


def sample(
    logits: Logits, params: SamplingParams, *, seed: int, position: int, banned: tuple[int, ...] = ()
) -> int:
    """The next token from `logits` [V], no `banned` one; minus infinity marks those that cannot be drawn too.

    Raises NumericsError when a logit is NaN or plus infinity or when no token is left.
    """
    greedy = int(np.argmax(logits))  # NaN wins argmax, so this one look finds it
    if greedy in banned:  # rare: a copy of all logits takes as long as the rest
        logits = logits.copy()
        logits[list(banned)] = -np.inf
        greedy = int(np.argmax(logits))
    top = float(logits[greedy])
    if not np.isfinite(top):
        raise NumericsError(f"the largest logit is {top}; expected a finite number")
    if params.temperature == 0.0:
        return greedy
    with np.errstate(over="ignore"):  # at the tiniest temperatures all but the likeliest have no weight
        ids = _candidates(logits, top, params, banned)
        logits = logits[ids]
        weights = np.exp((logits.astype(np.float64) - top) / params.temperature)
    weights = _restrict(weights, logits, params)
    return int(ids[_draw(weights, uniform(seed=seed, position=position))])


def _candidates(
    logits: Logits, top: float, params: SamplingParams, banned: tuple[int, ...]
) -> NDArray[np.intp]:
    """The ids in order that can have weight, and few others: with min-p those near the top one.

    What rounding may move over the edge is among them; the weights decide.
    """
    edge = -np.inf
    if params.min_p > 0.0:
        edge = top + params.temperature * math.log(params.min_p) - 1e-3 * (1.0 + abs(top))
    near = logits > np.float32(edge)
    near[list(banned)] = False
    return np.flatnonzero(near)


def uniform(*, seed: int, position: int) -> float:
    """A number in [0, 1) that depends on (seed, position) alone: the first of numpy's Philox stream for them.

    In plain integers it takes a tenth of the time that numpy needs to set a stream up.
    """
    counter = position % 2**64 + 1
    a, b, c, d = counter % 2**64, counter >> 64, 0, 0
    key, other = seed % 2**64, 0
    for _ in range(10):
        first, second = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
        a, b, c, d = second >> 64 ^ b ^ key, second & _WORD, first >> 64 ^ d ^ other, first & _WORD
        key, other = key + 0x9E3779B97F4A7C15 & _WORD, other + 0xBB67AE8584CAA73B & _WORD
    return (a >> 11) * 2.0**-53


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
