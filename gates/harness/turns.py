"""Turns of a conversation as a history holds them: which try counts, what came from the cache, who was busy.

Pure; knows no gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gates.harness.history import Operation

PAGE_TOKENS: Final = 128  # a server may cut a kept prefix back to a page border


def last_tries(asked: Sequence[Operation], *kinds: str) -> list[Operation]:
    """Of each question of these kinds the last time it was asked: a full server is asked again."""
    last = {
        (one.invoke.what, one.get("cell"), one.get("key")): one for one in asked if one.invoke.what in kinds
    }
    return list(last.values())


def kept_share(now: Operation, before: Operation) -> float | None:
    """The share of the turn before that this one took from the cache, a page forgiven; None if not known."""
    cached, prompt = now.get("cached_tokens"), before.get("prompt_tokens")
    if cached is None or not prompt:
        return None
    return min(1.0, (cached + PAGE_TOKENS) / prompt) if cached else 0.0


def silence(shares: Sequence[float | None]) -> str:
    """How many turns do not say what came from the cache, in words; empty where all do."""
    silent = sum(share is None for share in shares)
    return f"{silent} of {len(shares)} turns do not say what came from the cache" if silent else ""


def first_cause(lost: Sequence[Operation]) -> str:
    """What became of the first of these requests, in words; empty of none."""
    return f"the first: {lost[0].get('message') or 'an empty answer'}" if lost else ""


def on_quiet_host(one: Operation, most: float) -> bool:
    """Whether others used at most this share of the processors meanwhile, or nobody knows."""
    busy = one.get("host_busy_ratio")
    return busy is None or bool(busy <= most)
