"""The published description: true of the code, and a fuzzer that follows it finds nothing."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine.config import ServerSettings
from engine.server.app import build_routes
from engine.server.openapi import GETS, POSTS, describe
from engine.server.service import Host
from engine.tests.server.live import Live, Script, live_server, until
from engine.tests.server.wire import get, post

SCHEMA = schemathesis.openapi.from_dict(describe("test"))
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
EXAMPLES = 20  # of each path, beside the fixed cases that the fuzzer adds
NIGHTLY_EXAMPLES = 1_000
MUTATIONS = 700
NIGHTLY_MUTATIONS = 100_000


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """A server that must have no open request left in the end.

    All that it writes is short, also where a body sets no budget: whatever takes long is a fault.
    """
    with live_server(Script("Hm.</think>ok", once=True)) as running:
        yield running
        until(lambda: running.service.engine.stats().running + running.service.engine.stats().queued == 0, 5)
        counters = running.service.engine.stats().counters
        ended = sum(counters[f"requests_{name}"] for name in ("completed", "failed", "canceled", "rejected"))
        assert counters["requests_started"] == ended
        assert 0 == counters["requests_failed"]


def test_every_path_and_method_is_described(live: Live) -> None:
    published = get(live, "/openapi.json").json()
    routes = build_routes(Host(), ServerSettings(), fingerprint="x")
    served = {
        (route.path.replace(":path", ""), method.lower())
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method) for path, methods in published["paths"].items() for method in methods}
    spellings = {(path.removeprefix("/v1"), method) for path, method in described}
    spellings |= {(f"/anthropic{path}", method) for path, method in described}

    assert described <= served <= described | spellings
    assert len(POSTS) + len(GETS) == len(described)


def run(case: Any, live: Live) -> None:
    """Send one generated request and judge the answer."""
    case.call_and_validate(base_url=live.base_url, checks=CHECKS, timeout=20)


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_fuzzer_finds_nothing(case: Any, live: Live) -> None:
    run(case, live)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@SCHEMA.parametrize()
@settings(max_examples=NIGHTLY_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_nightly_fuzzer_finds_nothing(case: Any, live: Live) -> None:
    run(case, live)


SEEDS = [
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stop": ["x"]},
    ),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 3, "chat_wrap": True}),
    ("/v1/responses", {"input": [{"role": "user", "content": "Hi"}], "max_output_tokens": 3}),
    (
        "/v1/messages",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 3},
    ),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("/tokenize", {"content": "Hi"}),
    ("/detokenize", {"tokens": [5, 6]}),
]
_ODD = [
    b"",
    b"null",
    b"-1",
    b"1e999",
    b"[]",
    b"{}",
    b'"\\ud800"',
    b"9" * 400,
    b"[" * 300,
    b"\x00",
    b"\xff",
    b"true",
]


def mutated(body: bytes, chance: random.Random) -> bytes:
    """The body with one to three pieces cut out, doubled, exchanged or replaced."""
    for _ in range(chance.randint(1, 3)):
        at, to = sorted(chance.randint(0, len(body)) for _ in range(2))
        to = min(to, at + 12)
        body = chance.choice(
            [
                body[:at] + body[to:],
                body[:to] + body[at:],
                body[:at] + chance.choice(_ODD) + body[to:],
                body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :],
            ]
        )
    return body


def hammer(live: Live, seeds: range) -> None:
    """Send mutated bodies over kept connections; each is answered, below 500 and as JSON."""
    with httpx2.Client(base_url=live.base_url, timeout=20, verify=False) as client:
        for seed in seeds:
            chance = random.Random(seed)
            path, body = SEEDS[seed % len(SEEDS)]
            content = mutated(json.dumps(body).encode(), chance)
            answer = client.post(path, content=content)
            assert answer.status_code in (200, 400), (seed, path, content, answer.text)
            assert answer.headers["content-type"].startswith(("application/json", "text/event-stream")), seed


def test_mutated_bodies_are_answered(live: Live) -> None:
    hammer(live, range(MUTATIONS))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_night_of_mutated_bodies_is_answered(live: Live) -> None:
    hammer(live, range(MUTATIONS, MUTATIONS + NIGHTLY_MUTATIONS))


def exchange(live: Live, sent: bytes) -> bytes:
    """Send raw bytes, end the sending side, and read what comes back."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as raw:
        try:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: raw.recv(65536), b""))
        except OSError:  # it hung up while we were still sending
            return b""


def test_mutated_requests_leave_the_server_whole(live: Live) -> None:
    body = json.dumps(SEEDS[0][1]).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for seed in range(300):
        exchange(live, mutated(head, random.Random(seed)) + body)

    assert 200 == post(live, *SEEDS[0]).status_code
