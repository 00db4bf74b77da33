"""One load run from start to verdict: with a server of its own or one that runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import SettingError
from engine.load.client import Address
from engine.load.drive import Round, context, run_round
from engine.load.overhead import measure
from engine.load.plan import plan
from engine.load.process import Server, own_server
from engine.load.report import summary, wrong


@dataclass(frozen=True, slots=True)
class Options:
    """What to run; without `base_url` a server is started for `model`, with one thread for large steps.

    `overhead_rows` are the numbers of answers at once for which the server is held against the bare model.
    """

    model: Path
    base_url: str | None = None
    clients: tuple[int, ...] = (16, 64)
    requests: int = 96
    rounds: int = 2
    seed: int = 1
    overhead_rows: tuple[int, ...] = ()
    overhead_tokens: int = 64


def run(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Run everything; the result as plain data, `wrong` empty when all is well."""
    if options.base_url is not None:
        if options.overhead_rows:
            raise SettingError(
                "--overhead holds the bare model against a server that is started here: leave --base-url out"
            )
        return asyncio.run(_run(options, Address.of(options.base_url), None, say))
    with own_server(options.model) as server:
        return asyncio.run(_run(options, server.address, server, say))


async def _run(
    options: Options, address: Address, server: Server | None, say: Callable[[str], None]
) -> dict[str, Any]:
    pid = server.pid if server else None
    items = plan(options.requests, options.seed, context=await context(address))
    say(f"asking {len(items)} requests one by one")
    alone = await run_round(address, [replace(item, leave_after=None) for item in items], 1, pid)
    expected = {item.number: reply.ids for item, reply in alone.replies}
    rounds: list[Round] = [alone]
    for number in range(options.rounds):
        for clients in options.clients:
            say(f"round {number + 1} of {options.rounds} with {clients} clients")
            rounds.append(await run_round(address, items, clients, pid))
    found = [summary(entry, expected) for entry in rounds]
    costs = await _costs(options, server, say) if server else []
    return {"rounds": found, "overhead": costs, "wrong": wrong(found)}


async def _costs(options: Options, server: Server, say: Callable[[str], None]) -> list[dict[str, Any]]:
    found = []
    for rows in options.overhead_rows:
        say(f"the bare model and the server in turns, {rows} answers at once")
        cost = await measure(options.model, server, rows=rows, tokens=options.overhead_tokens)
        found.append(
            {
                "rows": rows,
                "bare_ms": round(1000 * cost.bare.token_s, 2),
                "served_ms": round(1000 * cost.served.token_s, 2),
                "wall": round(cost.wall, 3),
                "sent_ms": round(1000 * cost.sent.token_s, 2),
                "wall_beside_sender": round(cost.wall_beside_sender, 3),
                "bare_cpu_s": round(cost.bare.cpu_s, 3),
                "served_cpu_s": round(cost.served.cpu_s, 3),
                "cpu": round(cost.cpu, 3),
            }
        )
    return found
