"""Thousands of answers of the engine, each about a code that only its own client was told."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from gates.churn.plan import PREAMBLE_CHARACTERS
from gates.harness.client import Client
from gates.harness.reply import Reply
from gates.needle import text
from gates.needle.prose import prose
from gates.tests.live_engine import small_engine

CLIENTS, TENANTS = 16, 3
CODE = re.compile(r"\d{6}")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Two codes that no other conversation has, and the questions for them; every second begins alike."""

    tenant: str
    codes: tuple[str, str]
    questions: tuple[str, str]


def conversations(count: int, seed: int) -> list[Conversation]:
    draw, preamble = random.Random(seed), prose(f"strangers/{seed}", PREAMBLE_CHARACTERS)
    codes = list(dict.fromkeys(text.draw_code(draw) for _ in range(3 * count)))
    found = []
    for number in range(count):
        keys, own = draw.sample(text.KEYS, 2), (codes[2 * number], codes[2 * number + 1])
        told = [text.statement(key, code) for key, code in zip(keys, own, strict=True)]
        document = " ".join([preamble, *told] if number % 2 else told)
        asked = (text.user_message(document, text.question(keys[0])), text.follow_up(keys[1]))
        found.append(Conversation(f"tenant-{number % TENANTS}", own, asked))
    return found


def hold(client: Client, conversation: Conversation) -> list[Reply]:
    """Both answers, one streamed."""
    messages, replies = [], list[Reply]()
    extra = {"enable_thinking": False, "cache_salt": conversation.tenant}
    for turn, question in enumerate(conversation.questions):
        messages.append({"role": "user", "content": question})
        reply = client.chat(messages, max_tokens=40, stream=turn == 0, extra=extra)
        messages.append({"role": "assistant", "content": reply.text})
        replies.append(reply)
    return replies


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(500, marks=pytest.mark.nightly, id="1000_answers"),
        pytest.param(5_000, marks=pytest.mark.live, id="10000_answers"),
    ],
)
def test_no_answer_carries_the_code_of_another_client(count: int, tmp_path: Path) -> None:
    """The store is small, so that conversations are kept, gone on with and evicted all the time."""
    asked = conversations(count, seed=1)
    everybody = {code for one in asked for code in one.codes}
    with (
        small_engine(tmp_path, "--cache-mib", "24") as server,
        Client(server.base_url, deadline_s=600) as client,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        held = list(clients.map(lambda one: hold(client, one), asked))

    named = [[set(CODE.findall(reply.text)) for reply in replies] for replies in held]
    pairs = [(one, found) for one, both in zip(asked, named, strict=True) for found in both]
    assert [] == [(one.codes, found) for one, found in pairs if found & everybody - set(one.codes)]
    right = [
        found == {code}
        for one, both in zip(asked, named, strict=True)
        for code, found in zip(one.codes, both, strict=True)
    ]
    assert sum(right) >= 0.95 * len(right), "else no code is seen, a stranger's neither"
    cached = sum((replies[1].usage.cached_tokens or 0) > 0 for replies in held)
    assert cached >= 0.5 * len(held), "else nothing is shared that could be mixed up"
