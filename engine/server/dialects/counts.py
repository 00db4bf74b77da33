"""Token counts and times of an answer, as every dialect reports them beside each other.

Owns their names.  `timings` is one block for all dialects; what does not apply is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core import Timings
from engine.server.generation import Summary


def usage(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The `usage` of both OpenAI completions; cached and written tokens add up to the prompt.

    The prompt of several choices counts once, as the first one found it; their tokens add up.
    """
    times = summaries[0].timings
    prompt, cached = times.prompt_tokens, times.cached_tokens
    completion = sum(summary.completion_tokens for summary in summaries)
    reasoning = sum(summary.reasoning_tokens for summary in summaries)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": prompt - cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
        "prompt_cache_hit_tokens": cached,
        "prompt_cache_miss_tokens": prompt - cached,
    }


def timings(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Times in ms, rates in tokens/s, of all choices together.  Both common spellings are there."""
    times = Timings.of_all([summary.timings for summary in summaries])
    computed = times.prompt_tokens - times.cached_tokens
    after_first = max(0, times.generated_tokens - 1)
    found: dict[str, Any] = {
        "queue_ms": _ms(times.queue_s),
        "ttft_ms": _ms(times.first_token_s),
        "prefill_ms": _ms(times.prefill_s),
        "prefill_tokens": times.prompt_tokens,
        "prefill_cached": times.cached_tokens,
        "prefill_computed": computed,
        "decode_ms": _ms(times.decode_s),
        "decode_tokens": after_first,
        "total_ms": _ms(times.total_s),
        "cache_kind": times.kind.value,
        "cache_n": times.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": _ms(times.prefill_s),
        "predicted_n": times.generated_tokens,
        "predicted_ms": _ms(times.decode_s),
    }
    if times.batch_mean:
        found["batch_mean"] = round(times.batch_mean, 2)
    if times.prefill_s > 0 and computed:
        found["prefill_tok_s"] = found["prompt_per_second"] = round(computed / times.prefill_s, 2)
    if times.decode_s > 0 and after_first:
        found["decode_tok_s"] = found["predicted_per_second"] = round(after_first / times.decode_s, 2)
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
