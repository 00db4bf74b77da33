"""What a token costs through the API beside the bare model: the same file, the same rows, in turns.

The two are measured in turns, because another process may slow either down, and draw in the same way.
Wall time is what a client sees; on a busy machine it also holds the wait for a core, of the client too.
Processor time is what the server spends beyond the model, whoever else is there.
Between the two stands a loop that only sends: clients take their share of the processors from it too.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.load.bare import SAMPLING, Spent, decode, middle
from engine.load.client import Address, stream
from engine.load.process import Server, cpu_s, own_process
from engine.runner import Runner, Threads

TURNS = 7
MOST_TRIES = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """The medians over all turns of `rows` answers at once: bare, only sent to clients, through the API."""

    rows: int
    bare: Spent
    sent: Spent
    served: Spent

    @property
    def wall(self) -> float:
        """The share that the server adds to the time between two tokens."""
        return self.served.token_s / self.bare.token_s - 1.0

    @property
    def wall_beside_sender(self) -> float:
        """The same share beside a loop that sends its tokens to the same clients."""
        return self.served.token_s / self.sent.token_s - 1.0

    @property
    def cpu(self) -> float:
        """The share that the server adds to the processor time."""
        return self.served.cpu_s / self.bare.cpu_s - 1.0


async def measure(path: Path, server: Server, *, rows: int, tokens: int) -> Cost:
    """Decode `tokens` tokens of `rows` answers, bare, sent and served in turns; all with one thread."""
    runner = Runner(path, threads=Threads(1, 1))
    body, prompt_tokens = await _long_answer(server.address, tokens)
    bare, sent, served = [], [], []
    with own_process(
        "-m", "engine.load.sender", str(path), str(rows), str(tokens), str(prompt_tokens)
    ) as sender:
        for _ in range(TURNS):
            served.append(await _served(server, body, rows))
            sent.append(await _served(sender, body, rows))
            bare.append(await asyncio.to_thread(decode, runner, rows, tokens, prompt_tokens))
    return Cost(rows, _median(bare), _median(sent), _median(served))


def _median(turns: list[Spent]) -> Spent:
    return Spent(
        statistics.median(turn.token_s for turn in turns), statistics.median(turn.cpu_s for turn in turns)
    )


async def _long_answer(address: Address, tokens: int) -> tuple[dict[str, Any], int]:
    """A request whose answer does not end before its budget does, and its prompt's tokens."""
    for seed in range(MOST_TRIES):
        body = {
            "messages": [{"role": "user", "content": "Go on and on."}],
            "max_tokens": tokens,
            "temperature": SAMPLING.temperature,
            "seed": seed,
            "cache_prompt": False,
        }
        reply = await stream(address, body)
        if reply.finish == "length":
            return body, reply.prompt_tokens
    raise EngineError(f"no answer of {tokens} tokens in {MOST_TRIES} tries; ask for fewer")


async def _served(server: Server, body: dict[str, Any], rows: int) -> Spent:
    """The same through a server."""
    cpu = cpu_s(server.pid)
    replies = await asyncio.gather(*(stream(server.address, body) for _ in range(rows)))
    gaps = [gap for reply in replies for gap in middle(reply.gaps_s)]
    return Spent(statistics.fmean(gaps), cpu_s(server.pid) - cpu)
