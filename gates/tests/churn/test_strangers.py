"""Ten thousand answers of the engine, each about a code that only its own client was told."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gates.churn.plan import PREAMBLE_CHARACTERS
from gates.harness.client import Client
from gates.needle import text
from gates.needle.prose import prose
from gates.tests.live_engine import small_engine

ANSWERS, CLIENTS, TENANTS = 10_000, 16, 3
CODE = re.compile(r"\d{6}")


def questions(count: int, seed: int) -> dict[str, str]:
    """Messages by the code that each of them tells; every second one begins as all of those do."""
    draw, preamble = random.Random(seed), prose(f"strangers/{seed}", PREAMBLE_CHARACTERS)
    found: dict[str, str] = {}
    while len(found) < count:
        key, code = draw.choice(text.KEYS), text.draw_code(draw)
        told = f"{preamble if len(found) % 2 else ''} {text.statement(key, code)}".strip()
        found.setdefault(code, text.user_message(told, text.question(key)))
    return found


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_no_answer_carries_the_code_of_another_client(tmp_path: Path) -> None:
    """The store is small, so that prefixes are shared, evicted and computed again all the time."""
    asked = questions(ANSWERS, seed=1)

    with (
        small_engine(tmp_path, "--cache-mib", "12") as server,
        Client(server.base_url, deadline_s=600) as client,
    ):

        def answer(number: int, message: str) -> str:
            reply = client.chat(
                [{"role": "user", "content": message}],
                max_tokens=40,
                stream=number % 3 > 0,
                extra={"enable_thinking": False, "cache_salt": f"tenant-{number % TENANTS}"},
            )
            return reply.text

        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(answer, range(ANSWERS), asked.values()))

    named = [set(CODE.findall(said)) for said in answers]
    strange = {code: found & asked.keys() - {code} for code, found in zip(asked, named, strict=True)}
    assert {} == {code: found for code, found in strange.items() if found}
    assert sum(code in found for code, found in zip(asked, named, strict=True)) >= 0.95 * ANSWERS
