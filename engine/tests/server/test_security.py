"""Attacks that other servers fell for, each with what this one does."""

from __future__ import annotations

import ast
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import engine
from engine.chat.markers import ASSISTANT, BOS, DSML, END_THINK, EOS, THINK, USER
from engine.chat.request import ChatRequest, ToolResult, UserText, UserTurn
from engine.chat.template import encode_segments, render
from engine.tests.server.live import Live, Script, byte_tokenizer, live_server
from engine.tests.server.wire import post

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ASK = [{"role": "user", "content": "Hi"}]
ENGINE = Path(engine.__file__).parent
SOURCES = [path for path in ENGINE.rglob("*.py") if "tests" not in path.parts]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("</think>ok")) as running:
        yield running


def exchange(live: Live, sent: bytes, *, wait_s: float = 3.0) -> bytes:
    """Everything that comes back for raw bytes until the server hangs up or is silent."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=wait_s) as raw:
        raw.sendall(sent)
        found = b""
        try:
            while part := raw.recv(65536):
                found += part
        except TimeoutError:
            pass
        return found


# --- media and templates: nothing that a request names is fetched or run ---


def media(url: str) -> list[tuple[str, dict[str, Any]]]:
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_audio", "input_audio": {"data": url}},
        {"type": "file", "file": {"file_data": url}},
    ]
    found: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [{"role": "user", "content": [part]}]}) for part in parts
    ]
    image = {"type": "input_image", "image_url": url}
    found.append((RESPONSES, {"input": [{"role": "user", "content": [image]}]}))
    for kind in ("image", "document"):
        block = {"type": kind, "source": {"type": "url", "url": url}}
        found.append((MESSAGES, {"messages": [{"role": "user", "content": [block]}], "max_tokens": 5}))
    return found


@pytest.mark.parametrize(
    "scheme", ["http://127.0.0.1:{port}/x", "file:///etc/passwd", "data:image/png;base64,AAAA"]
)
def test_no_media_is_ever_fetched(live: Live, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.1)
        url = scheme.format(port=canary.getsockname()[1])
        refused = [post(live, path, body) for path, body in media(url)]
        call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
        image = {"type": "image_url", "image_url": {"url": url}}
        result = {"role": "tool", "tool_call_id": "c", "content": [image]}
        history = [*ASK, {"role": "assistant", "tool_calls": [call]}, result]
        told = post(live, CHAT, {"messages": history})
        with pytest.raises(TimeoutError):
            canary.accept()

    assert {400} == {answer.status_code for answer in refused}
    assert 200 == told.status_code
    assert "root:" not in "".join(answer.text for answer in refused)


def test_a_template_in_a_request_changes_nothing(live: Live) -> None:
    hostile = "{{ ().__class__.__base__.__subclasses__() }}{% for x in range(10**9) %}{% endfor %}"
    members = {
        "chat_template": hostile,
        "chat_template_kwargs": {"tokenize": True, "chat_template": hostile, "add_generation_prompt": False},
        "template": hostile,
    }
    plain = post(live, "/tokenize", {"messages": ASK}).json()["tokens"]
    began = time.monotonic()

    assert plain == post(live, "/tokenize", {"messages": ASK, **members}).json()["tokens"]
    assert time.monotonic() - began < 2


def test_marks_that_clients_type_stay_text() -> None:
    tokenizer = byte_tokenizer()
    marks = (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, DSML)
    specials = {tokenizer.special(mark) for mark in marks}
    chance = random.Random(7)
    pieces = [*marks, "</tool_result>", f"<{DSML}tool_calls>", "x", "\n", "<", "｜", "🎉"]
    for _ in range(10_000):
        typed = "".join(chance.choices(pieces, k=4))
        turn = UserTurn((UserText(typed), ToolResult("c", typed)))
        ids = encode_segments(tokenizer, render(ChatRequest(system=typed, turns=(turn,))))

        assert [BOS, USER, ASSISTANT, THINK] == [
            tokenizer.decode([token]) for token in ids if token in specials
        ]


# --- resources: bounded by what they cost, not by how they are spelled ---

HUGE: dict[str, Any] = {
    "deep_schema": {"response_format": {"type": "json_schema", "json_schema": {"schema": None}}},
    "many_stops": {"stop": ["x"] * 10**5},
    "long_stop": {"stop": "x" * 10**6},
    "many_answers": {"n": 10**6},
    "all_answers": {"n": -1},
    "logprobs_of_all": {"logprobs": True, "top_logprobs": 10**6},
    "logprobs_minus_one": {"logprobs": True, "top_logprobs": -1},
    "many_biases": {"logit_bias": {str(n): 1 for n in range(10**5)}},
    "budget": {"max_tokens": 10**18},
    "budget_digits": {"max_tokens": 10**4000},
    "many_tools": {"tools": [{"type": "function", "function": {"name": f"t{n}"}} for n in range(20_000)]},
    "deep_tool": {"tools": [{"type": "function", "function": {"name": "f", "parameters": None}}]},
    "model": {"model": "m" * 10**6},
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


HUGE["deep_schema"]["response_format"]["json_schema"]["schema"] = nested(100)
HUGE["deep_tool"]["tools"][0]["function"]["parameters"] = nested(100)


@pytest.mark.parametrize("members", HUGE.values(), ids=list(HUGE))
def test_a_huge_parameter_is_answered_soon_and_hurts_nobody(live: Live, members: dict[str, Any]) -> None:
    began = time.monotonic()
    answers = [
        httpx2.post(
            live.base_url + CHAT,
            content=_encode({"messages": ASK, **members}),
            timeout=20,
            verify=False,
        )
    ]
    took = time.monotonic() - began

    assert answers[0].status_code in (200, 400), answers[0].text[:300]
    assert len(answers[0].content) < 5000
    assert took < 5
    assert 200 == post(live, CHAT, {"messages": ASK}).status_code


def _encode(body: dict[str, Any]) -> bytes:
    budget = body.get("max_tokens", 0)
    if isinstance(budget, int) and budget > 10**100:  # Python refuses to print so many digits
        return json.dumps({**body, "max_tokens": 7}).replace("7}", "1" + "0" * 4000 + "}").encode()
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 5 * 2**20, id="no_blank"),
        pytest.param("(" * 10**6, id="brackets"),
        pytest.param(" " * 10**6, id="blanks"),
        pytest.param("1" * 10**6, id="digits"),
        pytest.param("\u202e\x00" * 10**5, id="bidi_and_nul"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/tokenize"])
def test_a_monstrous_text_is_refused_by_its_length(live: Live, path: str, text: str) -> None:
    answer = post(live, path, {"messages": [{"role": "user", "content": text}]})

    assert 400 == answer.status_code
    assert answer.json()["error"]["n_prompt_tokens"] >= 4000


# --- the protocol: no second request inside a first one, and no waiting for ever ---

BODY = json.dumps({"messages": ASK}).encode()
INNER = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
LINE = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n".encode()
SMUGGLED = {
    "two_lengths": b"Content-Length: 5\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY + INNER,
    "length_and_chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "odd_coding": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + INNER,
    "coding_in_disguise": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + INNER,
    "negative_length": b"Content-Length: -1\r\n\r\n" + INNER,
    "length_with_a_sign": b"Content-Length: +5\r\n\r\n12345" + INNER,
    "bad_chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + INNER,
    "blank_before_colon": b"Content-Length : 5\r\n\r\n12345" + INNER,
    "folded_line": b"X: a\r\n b\r\nContent-Length : 0\r\n\r\n" + INNER,
    "nul_in_a_value": b"X: a\x00b\r\n\r\n" + INNER,
}


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=list(SMUGGLED))
def test_no_request_hides_inside_another(live: Live, sent: bytes) -> None:
    answer = exchange(live, LINE + sent)

    assert b"max_model_len" not in answer
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert b"application/json" in answer
    assert 1 == answer.count(b"HTTP/1.1 ")


def test_a_preflight_hides_no_request_either(live: Live) -> None:
    head = (
        b"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = exchange(live, head + b"0\r\n\r\n" + INNER)

    assert answer.startswith(b"HTTP/1.1 400")
    assert 1 == answer.count(b"HTTP/1.1 ")


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_another_protocol_is_not_spoken_and_the_request_is_answered(
    live: Live, protocol: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    wish = b"Connection: Upgrade, close\r\nUpgrade: " + protocol + b"\r\n" + key
    answer = exchange(live, b"GET /health HTTP/1.1\r\nHost: x\r\n" + wish + b"\r\n", wait_s=0.5)

    assert answer.startswith(b"HTTP/1.1 200")
    assert [] == caplog.records


def test_a_chunk_of_any_size_swallows_what_follows(live: Live) -> None:
    sent = LINE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + INNER

    assert b"" == exchange(live, sent, wait_s=0.5)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="http2"),
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
        pytest.param(b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", id="version"),
        pytest.param(b"GET /health HTTP/1.1\r\n\r\n", id="no_host"),
    ],
)
def test_what_is_no_request_is_refused_in_json(live: Live, sent: bytes) -> None:
    answer = exchange(live, sent)
    body = json.loads(answer.partition(b"\r\n\r\n")[2])

    assert answer.startswith(b"HTTP/1.1 400")
    assert "invalid_request_error" == body["error"]["type"]
    assert "Invalid HTTP request" not in body["error"]["message"], "it says what is wrong"


def test_an_endless_head_and_too_many_lines_are_refused(live: Live) -> None:
    long = exchange(live, b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000)
    many = exchange(
        live, b"GET /health HTTP/1.1\r\nConnection: close\r\n" + b"X: a\r\n" * 200 + b"Host: x\r\n\r\n"
    )

    assert long.startswith(b"HTTP/1.1 431")
    assert many.startswith(b"HTTP/1.1 431")


def test_slow_senders_do_not_slow_others(live: Live) -> None:
    slow = [socket.create_connection(("127.0.0.1", live.port)) for _ in range(50)]
    for raw in slow:
        raw.sendall(LINE + b"Content-Length: 1000\r\n\r\n{")
    began = time.monotonic()
    answer = post(live, CHAT, {"messages": ASK})
    took = time.monotonic() - began
    for raw in slow:
        raw.close()

    assert 200 == answer.status_code
    assert took < 3


def test_old_and_chunked_forms_of_a_request_are_understood(live: Live) -> None:
    length = b"Content-Length: %d\r\n\r\n" % len(BODY)
    old = exchange(live, f"POST {CHAT} HTTP/1.0\r\n".encode() + length + BODY)
    parts = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    chunked = exchange(live, LINE + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + parts)

    assert b'"content":"ok"' in old
    assert b'"content":"ok"' in chunked


# --- the code itself ---


def calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ENGINE)))
def test_nothing_is_unpickled_or_evaluated(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }

    assert set() == imported & {"pickle", "dill", "marshal", "shelve", "cloudpickle", "joblib", "yaml"}
    assert set() == calls(tree) & {"eval", "exec", "compile", "__import__", "torch.load", "os.system"}


def test_keys_are_compared_in_constant_time() -> None:
    tree = ast.parse((ENGINE / "server" / "doorway.py").read_text(encoding="utf-8"))
    compared = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)]

    assert "hmac.compare_digest" in calls(tree)
    assert [] == [text for text in compared if "key" in text.lower() or "digest" in text.lower()]


def test_a_wrong_key_takes_as_long_whatever_it_shares_with_the_right_one() -> None:
    right = "k" * 64
    with (
        live_server(api_key=right) as locked,
        httpx2.Client(base_url=locked.base_url, verify=False) as client,
    ):
        times: dict[str, list[float]] = {"near": [], "far": []}
        for _ in range(300):
            for name, key in (("near", right[:-1] + "x"), ("far", "x" * 64)):
                began = time.perf_counter()
                client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
                times[name].append(time.perf_counter() - began)
    near, far = (sorted(times[name])[30] for name in ("near", "far"))  # the middle ones are a busy host's

    assert abs(near - far) < 0.25 * max(near, far)
    assert threading.active_count() < 60
