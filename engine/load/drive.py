"""Runs a load profile against a server: every request once alone, then all by many clients at once.

The answers alone are what those under load are held against, token by token.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import EngineError
from engine.load.client import Address, Reply, fetch, stream
from engine.load.plan import Item
from engine.load.process import memory_mib

SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """One pass: who asked what and got what, how long it took, what the server's gauges said afterwards."""

    clients: int
    replies: tuple[tuple[Item, Reply], ...]
    seconds: float
    settled_s: float | None  # until nothing ran or waited any more; None when that never came
    memory_mib: float | None


async def run_round(address: Address, items: Sequence[Item], clients: int, pid: int | None) -> Round:
    """Let so many clients work through the items, each taking the next one when it is free."""
    waiting = iter(items)
    replies: list[tuple[Item, Reply]] = []

    async def client() -> None:
        for item in waiting:
            replies.append((item, await stream(address, item.body, leave_after=item.leave_after)))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - began
    settled = await _settle(address)
    return Round(clients, tuple(replies), seconds, settled, memory_mib(pid) if pid else None)


async def context(address: Address) -> int:
    """Tokens that the server's model holds; EngineError where the server does not say."""
    listing = await fetch(address, "/v1/models")
    try:
        return int(json.loads(listing)["data"][0]["context_length"])
    except (ValueError, LookupError, TypeError):
        raise EngineError(
            "the server names no context_length in /v1/models: load asks only servers of this engine"
        ) from None


async def gauge(address: Address, name: str) -> float:
    """One gauge of the server's metrics."""
    found = re.search(rf"^{name} (\S+)$", await fetch(address, "/metrics"), re.MULTILINE)
    return float(found[1]) if found else float("nan")


async def _settle(address: Address) -> float | None:
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < 5 * SETTLE_S:
        if not await gauge(address, "ds4_requests_inflight"):
            return took
        await asyncio.sleep(0.02)
    return None
