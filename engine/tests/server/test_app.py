"""Limits, errors, health, keepalive and disconnection on the wire."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from engine.config import EngineSettings
from engine.server.generation import Choice
from engine.server.serve import _Http, address
from engine.tests.server.live import Live, Script, live_server, until
from engine.tests.server.wire import message

ASK = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"
OUT_OF_BOUNDS: dict[str, tuple[object, ...]] = {
    "max_tokens": (-1, 1e308, True, "1", 1.5, [1]),
    "max_completion_tokens": (-1, False, "9"),
    "temperature": (-0.1, 2.1, 1e308, True, "1", 2**63, 10**400),
    "top_p": (0, -1, 1.1, True, "1"),
    "top_k": (-1, 2**31, 1.0, True, "1", 2**63),
    "min_p": (-0.1, 1.1, True, "0"),
    "n": (0, 9, 129, -1, 10**6, 2**63, 1e308, True, "1"),
    "seed": (2**64, -(2**63) - 1, 1.5, True, "1"),
    "top_logprobs": (-1, 1, 2**31, True),
    "logprobs": (1, "yes"),
    "stream": (1, "true"),
    "stop": (1, [1], ["x"] * 17, "y" * 1025),
    "stream_options": (True, []),
    "logit_bias": ({"1": 5},),
    "tools": ({}, [1], [{"type": "function"}]),
    "tool_choice": ("required", {"type": "function"}, 3),
    "response_format": ({"type": "xml"}, "json"),
    "model": (1, ["m"], "m" * 1025),
    "reasoning_effort": ("much", 1, [], {}),
    "reasoning": ({"effort": []},),
    "think": ("x" * 10**6,),
    "messages": (None, [], {}, "hi", [{"role": "user", "content": 5}]),
}
AT_BOUNDS: dict[str, tuple[object, ...]] = {
    "max_tokens": (0, 1, 2**31, 2**63, None),
    "temperature": (0, 2, 2.0, None),
    "top_p": (1e-9, 1),
    "top_k": (0, 2**31 - 1),
    "min_p": (0, 1),
    "n": (1, 8, None),
    "seed": (2**63, -(2**63), 0),
    "stop": ([], "", ["x"] * 16, None),
    "tools": ([], None),
    "response_format": ({"type": "text"}, None),
    "unknown_member": ({"deep": [1, 2]},),
    "chat_template_kwargs": ({"tokenize": True, "chat_template": "{{ x }}"},),
}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("</think>ok")) as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Live]:
    with live_server(api_key="s3cret") as running:
        yield running


def post(live: Live, body: Any, path: str = CHAT) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(live.base_url + path, content=content, timeout=30, verify=False)


def test_health_names_the_loaded_model(live: Live) -> None:
    answer = httpx2.get(f"{live.base_url}/health", verify=False)

    assert (200, "ok", "script-model") == (
        answer.status_code,
        answer.json()["status"],
        answer.json()["model"],
    )
    assert answer.json()["uptime_s"] >= 0
    assert answer.headers["x-request-id"].startswith("req_")


def test_while_loading_the_socket_answers_503() -> None:
    gate = threading.Event()
    with live_server(wait=False, before_load=lambda: gate.wait(20)) as loading:
        health = httpx2.get(f"{loading.base_url}/health", verify=False)
        chat = post(loading, {"messages": ASK})
        models = httpx2.get(f"{loading.base_url}/v1/models", verify=False)
        gate.set()
        until(lambda: httpx2.get(f"{loading.base_url}/health", verify=False).status_code == 200)

    assert (503, {"status": "loading"}) == (health.status_code, health.json())
    assert [503, 503] == [chat.status_code, models.status_code]
    assert ("not_ready", "server_error") == (chat.json()["error"]["code"], chat.json()["error"]["type"])
    assert int(chat.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("member", "value"), [(name, value) for name in OUT_OF_BOUNDS for value in OUT_OF_BOUNDS[name]]
)
def test_a_value_out_of_bounds_is_refused_by_its_name(live: Live, member: str, value: object) -> None:
    answer = post(live, {"messages": ASK, member: value})
    error = answer.json()["error"]

    assert 400 == answer.status_code
    assert error["param"].split(".")[0] == member
    assert "invalid_request_error" == error["type"]
    assert len(error["message"]) < 250, "a message does not repeat what was sent"


@pytest.mark.parametrize(
    ("member", "value"), [(name, value) for name in AT_BOUNDS for value in AT_BOUNDS[name]]
)
def test_a_value_at_its_bound_is_accepted(live: Live, member: str, value: object) -> None:
    assert 200 == post(live, {"messages": ASK, member: value}).status_code


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'{"messages": NaN}', id="nan"),
        pytest.param(b'{"temperature": Infinity}', id="infinity"),
        pytest.param(b'{"metadata": [1e999]}', id="beyond_all_floats"),
        pytest.param(b"\xff\xfe{}", id="not_utf8"),
        pytest.param(b'{"a":' * 300 + b"1" + b"}" * 300, id="nested_300"),
        pytest.param(b'{"a":' + b"[" * 60000, id="nested_60000"),
        pytest.param(b'{"seed": ' + b"9" * 5000 + b"}", id="5000_digits"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(live: Live, body: bytes) -> None:
    answer = post(live, body)

    assert (400, "invalid_json") == (answer.status_code, answer.json()["error"]["code"])


def test_a_body_over_the_limit_is_refused() -> None:
    with live_server(max_body_mib=1) as small:
        answer = post(small, b" " * (2**20 + 1))
        after = httpx2.get(f"{small.base_url}/health", verify=False)

    assert (413, "request_too_large") == (answer.status_code, answer.json()["error"]["code"])
    assert 200 == after.status_code


def test_a_chunked_body_over_the_limit_is_refused() -> None:
    with live_server(max_body_mib=1) as small:
        parts = (b" " * 100_000 for _ in range(12))
        answer = httpx2.post(small.base_url + CHAT, content=parts, timeout=30, verify=False)

    assert 413 == answer.status_code


def test_a_compressed_body_is_refused(live: Live) -> None:
    answer = httpx2.post(
        live.base_url + CHAT, content=b"x", headers={"content-encoding": "gzip"}, verify=False
    )

    assert 415 == answer.status_code


@pytest.mark.parametrize(
    ("encodings", "status"), [(["Identity"], 200), (["identity", "gzip"], 415), ([""], 200)]
)
def test_every_line_about_the_encoding_is_read(live: Live, encodings: list[str], status: int) -> None:
    headers = [("content-encoding", encoding) for encoding in encodings]
    body = json.dumps({"messages": ASK}).encode()

    assert (
        status
        == httpx2.post(
            live.base_url + CHAT, content=body, headers=headers, timeout=30, verify=False
        ).status_code
    )


def test_a_body_that_stops_coming_is_given_up_and_its_client_told_what_to_do() -> None:
    with live_server(body_timeout_s=0.2) as hasty, socket.create_connection(("127.0.0.1", hasty.port)) as raw:
        raw.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        raw.settimeout(10)
        answer = message(raw)

        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"code":"request_timeout"' in answer
        assert b"0.2 s, which is the longest pause allowed; send all of it at once" in answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="none"),
        pytest.param({"authorization": "Bearer wrong"}, 401, id="wrong"),
        pytest.param({"authorization": "Bearer"}, 401, id="empty"),
        pytest.param({"authorization": "Bearer s3cret"}, 200, id="bearer"),
        pytest.param({"authorization": "bearer s3cret"}, 200, id="any_case"),
        pytest.param({"authorization": "Basic s3cret"}, 401, id="another_scheme"),
        pytest.param({"x-api-key": "s3cret"}, 200, id="x_api_key"),
    ],
)
def test_a_key_is_asked_for_where_one_is_set(locked: Live, headers: dict[str, str], status: int) -> None:
    models = httpx2.get(f"{locked.base_url}/v1/models", headers=headers, verify=False)

    assert status == models.status_code
    assert 200 == httpx2.get(f"{locked.base_url}/health", verify=False).status_code
    if status == 401:
        assert ("invalid_api_key", "Bearer") == (
            models.json()["error"]["code"],
            models.headers["www-authenticate"],
        )


def test_unknown_paths_and_methods_answer_in_the_clients_shape(live: Live) -> None:
    missing = httpx2.get(f"{live.base_url}/v1/nothing", verify=False)
    wrong = httpx2.get(live.base_url + CHAT, verify=False)

    assert (404, "not_found") == (missing.status_code, missing.json()["error"]["code"])
    assert (405, "method_not_allowed") == (wrong.status_code, wrong.json()["error"]["code"])
    assert "POST" in wrong.headers["allow"]


def test_a_wrong_method_is_told_the_one_that_asks(live: Live) -> None:
    answer = httpx2.post(f"{live.base_url}/v1/models", verify=False)

    assert "GET, HEAD" == answer.headers["allow"]
    assert answer.json()["error"]["message"].endswith("; use GET")


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}/", "/chat/completions", f"{CHAT}?beta=true"])
def test_common_spellings_of_the_path_work(live: Live, path: str) -> None:
    assert 200 == post(live, {"messages": ASK}, path).status_code


def test_tokenize_counts_what_chat_reports(live: Live) -> None:
    body = {"messages": [{"role": "system", "content": "Be brief."}, *ASK]}
    counted = post(live, body, "/tokenize").json()["count"]

    assert post(live, body).json()["usage"]["prompt_tokens"] == counted


def test_a_stream_breathes_before_its_first_token() -> None:
    script = Script("</think>ok", before_step=lambda _: time.sleep(0.3))
    with live_server(script, keepalive_s=0.05) as slow:
        lines = _raw_stream(slow).split("\n\n")

    assert lines[0].endswith(": keepalive")
    assert lines.count(": keepalive") >= 3
    assert "data: [DONE]" == lines[-2]


def test_a_client_that_leaves_before_its_body_has_come_is_no_failure(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.2)
    time.sleep(0.2)

    assert 200 == httpx2.get(f"{live.base_url}/health", verify=False).status_code
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def _raw_stream(live: Live) -> str:
    body = {"messages": ASK, "stream": True}
    with httpx2.stream("POST", live.base_url + CHAT, json=body, timeout=30, verify=False) as answer:
        return "".join(answer.iter_text())


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_cancels_its_request(streaming: bool) -> None:
    script = Script("</think>" + "long " * 500, before_step=lambda _: time.sleep(0.01))
    with live_server(script) as slow:
        body = json.dumps({"messages": ASK, "stream": streaming}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", slow.port)) as raw:
            raw.sendall(head + body)
            until(lambda: slow.service.engine.stats().counters["tokens_decoded"] > 3)
        until(lambda: slow.service.engine.stats().counters["requests_canceled"] == 1, seconds=2)
        decoded = slow.service.engine.stats().counters["tokens_decoded"]

    assert decoded < 2000


def test_a_failing_request_leaves_its_neighbour_alone() -> None:
    def break_on_tilde(slices: list[list[int]]) -> None:
        if any(script.tokenizer.encode("~")[0] in tokens for tokens in slices):
            raise RuntimeError("secret path /home/x")

    script = Script("</think>" + "word " * 40, before_step=break_on_tilde)
    with live_server(script) as fragile:
        good: list[httpx2.Response] = []
        neighbour = threading.Thread(target=lambda: good.append(post(fragile, {"messages": ASK})))
        neighbour.start()
        bad = post(fragile, {"messages": [{"role": "user", "content": "~"}]})
        streamed = post(fragile, {"messages": [{"role": "user", "content": "~"}], "stream": True})
        neighbour.join(30)

    assert (500, "internal_error") == (bad.status_code, bad.json()["error"]["code"])
    assert "secret" not in bad.text + streamed.text
    assert (200, True) == (streamed.status_code, '"error"' in streamed.text)
    assert "[DONE]" not in streamed.text
    assert "word " * 40 == good[0].json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_a_fault_of_the_server_is_told_in_the_stream(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(*_: object) -> list[object]:
        raise KeyError("s3cret")

    monkeypatch.setattr(Choice, "take", fault)
    with live_server() as live:
        asked = {"input": "Hi"} if "responses" in path else {"messages": ASK}
        answer = post(live, {**asked, "stream": True}, path)
        until(lambda: live.service.engine.stats().running == 0)

    assert "it is not the request's fault" in answer.text
    assert "s3cret" not in answer.text
    assert any("event=failed" in record.message and "KeyError" in record.message for record in caplog.records)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_engine_leaves_nobody_waiting_and_is_no_longer_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("by nothing")

    with live_server() as hurt:
        monkeypatch.setattr(hurt.service.engine._scheduler, "plan", broken)
        asked, after = post(hurt, {"messages": ASK}), post(hurt, {"messages": ASK})
        health = httpx2.get(f"{hurt.base_url}/health", verify=False)

    assert [500, 503] == [asked.status_code, after.status_code]
    assert (503, {"status": "failed"}) == (health.status_code, health.json())


def test_a_wedged_engine_is_not_healthy_until_tokens_move_again() -> None:
    gate = threading.Event()
    script = Script("</think>ok", before_step=lambda _: gate.wait(20))
    with live_server(script, stall_s=0.2) as wedged:
        first = threading.Thread(target=lambda: post(wedged, {"messages": ASK}))
        first.start()
        until(lambda: wedged.server.host.status == "stalled")
        health = httpx2.get(f"{wedged.base_url}/health", verify=False)
        gate.set()
        first.join(30)
        mended = httpx2.get(f"{wedged.base_url}/health", verify=False)

    assert (503, {"status": "stalled"}) == (health.status_code, health.json())
    assert 200 == mended.status_code


def test_a_full_queue_answers_503_at_once() -> None:
    gate = threading.Event()
    script = Script("</think>ok", before_step=lambda _: gate.wait(20))
    with live_server(script, engine=EngineSettings(max_sequences=1, queue_depth=0)) as busy:
        first = threading.Thread(target=lambda: post(busy, {"messages": ASK}))
        first.start()
        until(lambda: busy.service.engine.stats().running == 1)
        refused = post(busy, {"messages": ASK, "stream": True})
        health = httpx2.get(f"{busy.base_url}/health", timeout=5, verify=False)
        gate.set()
        first.join(30)

    assert (503, "overloaded") == (refused.status_code, refused.json()["error"]["code"])
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert 200 == health.status_code


def test_a_server_that_ends_finishes_its_answers_and_takes_no_new_ones() -> None:
    gate = threading.Event()
    script = Script("</think>done", before_step=lambda _: gate.wait(20))
    with live_server(script, grace_s=20.0) as ending:
        answers: list[httpx2.Response] = []
        first = threading.Thread(target=lambda: answers.append(post(ending, {"messages": ASK})))
        first.start()
        until(lambda: ending.service.engine.stats().running == 1)
        ending.server.stop()
        health, refused = (
            httpx2.get(f"{ending.base_url}/health", verify=False),
            post(ending, {"messages": ASK}),
        )
        gate.set()
        first.join(30)

    assert (503, {"status": "draining"}) == (health.status_code, health.json())
    assert (503, "5") == (refused.status_code, refused.headers["retry-after"])
    assert "done" == answers[0].json()["choices"][0]["message"]["content"]


def test_answers_that_take_longer_than_the_grace_are_told_that_they_are_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script("</think>" + "word " * 700, before_step=lambda _: time.sleep(0.02))
    bodies = [(CHAT, False), (CHAT, True), ("/v1/messages", True), ("/v1/responses", True)]
    answers: dict[tuple[str, bool], httpx2.Response] = {}

    def ask(live: Live, path: str, streamed: bool) -> None:
        asked = {"input": "Hi"} if "responses" in path else {"messages": ASK}
        answers[path, streamed] = post(live, {**asked, "stream": streamed}, path)

    with live_server(script, grace_s=0.2) as ending:
        asking = [threading.Thread(target=ask, args=(ending, *each)) for each in bodies]
        for each in asking:
            each.start()
        until(lambda: ending.service.engine.stats().counters["tokens_decoded"] > 8)
        ending.server.stop()
        for each in asking:
            each.join(30)
    ends = [answers[path, True].text.strip().split("\n\n")[-1] for path, streamed in bodies if streamed]

    assert (503, "5") == (answers[CHAT, False].status_code, answers[CHAT, False].headers["retry-after"])
    assert all("the server ends and cut this answer off" in end for end in ends)
    assert ['"code":"not_ready"', "overloaded_error", "response.failed"] == [
        word
        for word, end in zip(['"code":"not_ready"', "overloaded_error", "response.failed"], ends, strict=True)
        if word in end
    ]
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def _ask_slowly(live: Live, raw: socket.socket) -> None:
    """Ask for a stream that soon waits for its client, and read nothing of it."""
    for each, size in ((live.server._socket, socket.SO_SNDBUF), (raw, socket.SO_RCVBUF)):
        each.setsockopt(socket.SOL_SOCKET, size, 4096)
    raw.settimeout(60)
    raw.connect(("127.0.0.1", live.port))
    body = json.dumps({"messages": ASK, "stream": True}).encode()
    raw.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\n" % CHAT.encode())
    raw.sendall(b"content-length: %d\r\n\r\n%b" % (len(body), body))
    until(lambda: live.server.host.traffic.backlog_bytes() > 0 and live.server.host.open_requests == 0)


def test_a_server_that_ends_lets_an_answer_that_is_made_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is done long before a client that reads slowly; ending then would cut its answer off."""
    owed: list[int] = []
    ending, leave = threading.Event(), _Http.shutdown

    async def noted(self: _Http, sockets: list[socket.socket] | None = None) -> None:
        owed.append(server.host.traffic.backlog_bytes())
        ending.set()
        await leave(self, sockets)

    monkeypatch.setattr(_Http, "shutdown", noted)
    with live_server(Script("</think>" + "word " * 300), grace_s=60.0) as live, socket.socket() as raw:
        server = live.server
        _ask_slowly(live, raw)
        server.stop()
        ended_early = ending.wait(0.5)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))

    assert not ended_early
    assert [0] == owed
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_client_that_takes_nothing_is_hung_up_on_without_a_failure_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as raw:
        with live_server(Script("</think>" + "word " * 300)) as live:
            _ask_slowly(live, raw)
        left = live.server.host.traffic.clients()

    assert 0 == left
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def test_connections_send_at_once(live: Live) -> None:
    """Without this each event waits 40 ms for the client to acknowledge the last one."""
    listening = live.server._socket

    assert 0 != listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost"), ("", "0.0.0.0")],
)
def test_the_address_that_is_announced_can_be_copied(host: str, shown: str) -> None:
    assert f"http://{shown}:8000/v1" == address(host, 8000)
    assert 8000 == urlsplit(address(host, 8000)).port
