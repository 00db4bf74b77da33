"""A real model behind the API: an answer is the same whoever else is served, however it is sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from engine.config import EngineSettings, ServerSettings, Settings
from engine.server.loading import load_service
from engine.server.serve import Server
from engine.tests.server.live import until

CHUNKS = ((1024, 256), (20, 3))
TEXT = "What is it?" * 3
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
ASKS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "max_tokens": 8},
    "drawn": {"temperature": 1.0, "seed": 7, "max_tokens": 8},
    "formed": {"temperature": 1.0, "seed": 7, "max_tokens": 12, "response_format": FORMAT, "thinking": False},
}


@contextmanager
def serving(path: Path, chunk: int, chunk_live: int) -> Iterator[str]:
    """The base URL of a server with a real model."""
    engine = EngineSettings(threads=1, max_sequences=16, prefill_chunk=chunk, prefill_chunk_live=chunk_live)
    settings = Settings(engine=engine, server=ServerSettings(port=0, grace_s=0.0))
    server = Server(settings, lambda: load_service(path, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.host.status == "ok")
        yield f"http://127.0.0.1:{server.port}/v1/chat/completions"
    finally:
        server.stop()
        thread.join(20)


def ids(url: str, text: str, stream: bool = False, **asked: Any) -> list[int]:
    """The token ids of one answer."""
    body = {
        "messages": [{"role": "user", "content": text}],
        "cache_prompt": False,
        "return_token_ids": True,
        "stream": stream,
        **asked,
    }
    answer = httpx2.post(url, json=body, timeout=120, verify=False)
    assert 200 == answer.status_code, answer.text
    if not stream:
        found: list[int] = answer.json()["choices"][0]["token_ids"]
        return found
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return [token for choice in choices for token in choice.get("token_ids", ())]


def company(url: str, *, stream: bool) -> dict[str, list[int]]:
    """The answers of all kinds, asked at the same time as others, sixteen together."""
    with ThreadPoolExecutor(16) as pool:
        others = [
            pool.submit(ids, url, f"Other {n} " * (1 + n % 4), temperature=1.0, seed=n, max_tokens=9)
            for n in range(16 - len(ASKS))
        ]
        mine = {kind: pool.submit(ids, url, TEXT, stream, **asked) for kind, asked in ASKS.items()}
        assert all(other.result() for other in others)
        return {kind: found.result() for kind, found in mine.items()}


def test_answers_are_the_same_alone_in_company_in_any_chunks_and_streamed(small_path: Path) -> None:
    with serving(small_path, *CHUNKS[0]) as url:
        alone = {kind: ids(url, TEXT, **asked) for kind, asked in ASKS.items()}
        together = [company(url, stream=False)]
    for chunks in CHUNKS[1:]:
        with serving(small_path, *chunks) as url:
            together.append(company(url, stream=True))

    assert [alone] * len(CHUNKS) == together
    assert all(len(found) > 1 for found in alone.values())
