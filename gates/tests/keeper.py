"""An honest small server with a budget: it keeps conversations, lets idle ones yield, and refuses when full.

A reader that counts its tokens as bytes of a budget.  Knows pins, tenants by salt, and what `/metrics` says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gates.tests.reader import (
    Answered,
    Body,
    Delta,
    End,
    Part,
    common_tokens,
    prompt_tokens,
    reply_text,
    tokens,
    usage,
)

TOKEN_BYTES: Final = 100  # of kept rows
PAGE: Final = 16


@dataclass(slots=True)
class Kept:
    """One idle conversation."""

    tokens: list[str]
    salt: str
    pinned: bool
    used: int


class Keeper:
    """Keeps at most `budget_tokens` tokens, running and idle together.

    Takes so many seconds for each token of a prompt, and for each of a reply.
    """

    def __init__(
        self, *, budget_tokens: int, seconds_per_token: float = 0.0, seconds_per_reply_token: float = 0.0
    ) -> None:
        self.budget_tokens = budget_tokens
        self.pinned_first = False  # whether pinned conversations yield before others
        self._seconds_per_token = seconds_per_token
        self._seconds_per_reply_token = seconds_per_reply_token
        self._lock = threading.Lock()
        self._kept: list[Kept] = []
        self._promised: dict[int, int] = {}  # of running requests
        self._evicted = {"pinned": 0, "warm": 0}
        self._clock = 0

    def answer(self, body: Body) -> Iterator[Part]:
        """Let in or refuse, prefill in real time, then one token a fragment; who leaves frees all."""
        prompt = prompt_tokens(body)
        number = self._let_in(len(prompt) + int(body["max_tokens"]))
        said: list[str] = []
        try:
            cached, pinned = self._take(prompt, body)
            time.sleep(self._seconds_per_token * (len(prompt) - cached))
            for place, token in enumerate(tokens(reply_text(body))[: body["max_tokens"]]):
                time.sleep(self._seconds_per_reply_token)
                said.append(token)
                yield Delta(token, (place,))
            self._keep([*prompt, *said], body, pinned)
        finally:
            with self._lock:
                self._promised.pop(number, None)
        cut = len(said) == body["max_tokens"]
        yield End("length" if cut else "stop", usage(len(prompt), len(said), cached))

    def metrics(self) -> str:
        """The budget, what had to yield, and what is open."""
        with self._lock:
            used = sum(len(kept.tokens) for kept in self._kept)
            lines = [
                f'ds4_kv_bytes{{kind="budget"}} {self.budget_tokens * TOKEN_BYTES}',
                f'ds4_kv_bytes{{kind="free"}} {(self.budget_tokens - used) * TOKEN_BYTES}',
                *(f'ds4_evictions_total{{tier="{tier}"}} {count}' for tier, count in self._evicted.items()),
                f"ds4_requests_inflight {len(self._promised)}",
            ]
        return "\n".join(lines) + "\n"

    def _let_in(self, need: int) -> int:
        with self._lock:
            if sum(self._promised.values()) + need > self.budget_tokens:
                held = f"{len(self._promised)} requests hold {sum(self._promised.values())} tokens"
                message = f"no memory for {need} tokens now: {held}; try again"
                raise Answered(503, {"error": {"message": message, "code": "full"}}, {"retry-after": "1"})
            self._clock += 1
            self._promised[self._clock] = need
            return self._clock

    def _take(self, prompt: list[str], body: Body) -> tuple[int, bool]:
        """How much of a prompt is cached, and whether what it continues is pinned."""
        salt, best, found = str(body.get("cache_salt", "")), 0, None
        with self._lock:
            for kept in self._kept if body.get("cache_prompt", True) else []:
                common = common_tokens(prompt, kept.tokens) if kept.salt == salt else 0
                if common > best:
                    best, found = common, kept
            if found:
                self._clock += 1
                found.used = self._clock
        cached = min(best, len(prompt) - 1) // PAGE * PAGE
        return cached, bool(found and found.pinned and cached)

    def _keep(self, whole: list[str], body: Body, pinned: bool) -> None:
        if not body.get("cache_prompt", True):
            return
        salt = str(body.get("cache_salt", ""))
        wish = bool(body.get("pin_cache", pinned))
        with self._lock:
            self._clock += 1
            self._kept = [
                one for one in self._kept if one.salt != salt or one.tokens != whole[: len(one.tokens)]
            ]
            self._kept.append(Kept(whole, salt, wish, self._clock))
            while sum(len(one.tokens) for one in self._kept) > self.budget_tokens:
                self._drop(min(self._kept, key=lambda one: (one.pinned is not self.pinned_first, one.used)))

    def _drop(self, kept: Kept) -> None:
        self._kept.remove(kept)
        self._evicted["pinned" if kept.pinned else "warm"] += 1
