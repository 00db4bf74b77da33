"""Who shares cached prefixes with whom, and what the server says when memory is short, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from engine.server.serve import READERS
from engine.server.service import Service
from engine.tests.fake_pages import ledger
from engine.tests.server.live import Live, Script, live_server, until

ASK = {"messages": [{"role": "user", "content": "x" * 300}], "max_tokens": 4, "temperature": 0}
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")


@pytest.fixture
def keyed() -> Iterator[Live]:
    with live_server(api_key="one,two") as live:
        yield live


def cached(live: Live, key: str, *, body: dict[str, Any] | None = None, **headers: str) -> int:
    """Tokens of a chat that came from a kept prefix."""
    sent = {"authorization": f"Bearer {key}", **headers}
    answer = httpx2.post(
        f"{live.base_url}{PATHS[0]}", json={**ASK, **(body or {})}, headers=sent, verify=False
    )
    answer.raise_for_status()
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_prefixes_are_shared_within_a_key_and_a_salt_only(keyed: Live) -> None:
    first, again, other = cached(keyed, "one"), cached(keyed, "one"), cached(keyed, "two")
    salted = [cached(keyed, "one", body={"cache_salt": salt}) for salt in ("a", "a", "b")]

    assert (0, 0) == (first, other)
    assert again > 300
    assert [0, again, 0] == salted


def test_a_wish_to_pin_is_heard_in_body_and_head(keyed: Live) -> None:
    def pinned() -> int:
        return keyed.service.engine.stats().memory.pinned_records

    assert 0 == pinned()
    for expected, body, headers in (
        (0, {"cache_salt": "1"}, {}),
        (1, {"cache_salt": "2", "pin_cache": True}, {}),
        (2, {"cache_salt": "3"}, {"x-pin-cache": "1"}),
        (2, {"cache_salt": "4", "pin_cache": False}, {"x-pin-cache": "1"}),
    ):
        cached(keyed, "one", body=body, **headers)
        until(lambda wanted=expected: pinned() == wanted)  # type: ignore[misc]  # told after the answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_request_for_which_there_is_no_memory_is_told_at_once_what_is_held(path: str, stream: bool) -> None:
    member = {PATHS[2]: "input", PATHS[3]: "prompt"}.get(path)
    body: dict[str, Any] = {**({member: "x" * 300} if member else ASK), "max_tokens": 4, "stream": stream}
    with live_server(Script(ledger=ledger(pages=20))) as live:
        answer = httpx2.post(f"{live.base_url}{path}", json=body, verify=False)
        small = httpx2.post(
            f"{live.base_url}/v1/completions", json={"prompt": "x", "max_tokens": 2}, verify=False
        )
        counters = live.service.engine.stats().counters

    assert 503 == answer.status_code
    assert 1 <= int(answer.headers["retry-after"])
    assert "running and 0 waiting requests hold" in answer.text
    assert 200 == small.status_code
    assert (1, 1) == (counters["requests_rejected"], counters["rejected_live_headroom"])


def test_prompts_are_read_by_few_threads_and_all_of_them_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread keeps memory for the largest prompt that it read."""
    lock, go_on = threading.Lock(), threading.Event()
    reading: list[int] = []
    at_once: list[int] = []

    def slow(*_: object, **__: object) -> tuple[int, ...]:
        with lock:
            reading.append(1)
            at_once.append(len(reading))
        assert go_on.wait(60)
        with lock:
            reading.pop()
        return (5,)

    monkeypatch.setattr(Service, "prompt_ids", slow)
    with live_server() as live, ThreadPoolExecutor(6) as clients:
        asked = [
            clients.submit(httpx2.post, f"{live.base_url}/tokenize", json=ASK, timeout=60, verify=False)
            for _ in range(6)
        ]
        until(lambda: len(reading) == READERS and live.server.host.traffic.clients() == 6, 60)
        go_on.set()
        statuses = [answer.result().status_code for answer in asked]

    assert [200] * 6 == statuses
    assert READERS == max(at_once)
