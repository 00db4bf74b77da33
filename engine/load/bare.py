"""The bare model loop: some rows, step by step, with a greedy choice, and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.runner import Runner


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
    chosen: Callable[[NDArray[np.intp]], None] = lambda _: None,
) -> Spent:
    """Decode `tokens` tokens of `rows` answers at once; `chosen` gets each step's ids [B]."""
    cpu = time.thread_time()
    caches = [runner.new_cache() for _ in range(rows)]
    prompt = [5 + index % 50 for index in range(prompt_tokens)]
    logits = np.stack([np.asarray(runner.step([(cache, prompt)]))[0] for cache in caches])
    began = time.perf_counter()
    for step in range(tokens):
        ids = np.argmax(logits, axis=-1)
        chosen(ids)
        if step < tokens - 1:
            work = [(cache, [int(token)]) for cache, token in zip(caches, ids, strict=True)]
            logits = np.asarray(runner.step(work))
    return Spent((time.perf_counter() - began) / (tokens - 1), time.thread_time() - cpu)
