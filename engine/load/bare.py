"""The bare model loop: rows step by step, each token drawn as a request asks for it, and what it took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.core import SamplingParams
from engine.runner import Runner
from engine.sampling import sample

SAMPLING = SamplingParams(temperature=1.0)  # what the requests of the comparison ask for


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds a token of an answer took, and processor seconds of the whole work."""

    token_s: float
    cpu_s: float


def decode(
    runner: Runner,
    rows: int,
    tokens: int,
    prompt_tokens: int,
    chosen: Callable[[Sequence[int]], None] = lambda _: None,
) -> Spent:
    """Decode `tokens` tokens of `rows` answers at once; `chosen` gets each step's ids, one a row."""
    cpu = time.thread_time()
    caches = [runner.new_cache() for _ in range(rows)]
    prompt = [5 + index % 50 for index in range(prompt_tokens)]
    logits = np.stack([np.asarray(runner.step([(cache, prompt)]))[0] for cache in caches])
    moments = []
    for step in range(tokens):
        moments.append(time.perf_counter())
        ids = [sample(row, SAMPLING, seed=0, position=prompt_tokens + step) for row in logits]
        chosen(ids)
        if step < tokens - 1:
            work = [(cache, [token]) for cache, token in zip(caches, ids, strict=True)]
            logits = np.asarray(runner.step(work))
    gaps = [now - before for before, now in pairwise(moments)]
    return Spent(statistics.fmean(middle(gaps)), time.thread_time() - cpu)


def middle(gaps_s: Sequence[float]) -> Sequence[float]:
    """The times between tokens from the middle of an answer: all rows decode, and each step is as long as
    in another loop's middle, where the rows look back as far."""
    return gaps_s[len(gaps_s) // 2 : 3 * len(gaps_s) // 4]
