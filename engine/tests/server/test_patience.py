"""Clients that take their time, and bodies made to take the server's."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Event, Semaphore
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from engine.errors import RequestError
from engine.grammar_check import GrammarCheck
from engine.server import body, patience, serve
from engine.server.body import MAX_VALUES, decode_object
from engine.server.patience import PatientProtocol
from engine.server.stream import STRAIGHT
from engine.tests.server.live import Live, live_server, until
from engine.tests.server.wire import get, message, post

CHAT = "/v1/chat/completions"
GENEROUS_S = 60.0  # a busy machine may be this slow; what is tested is that it happens at all


def _dripped(live: Live, opening: bytes, drop: bytes) -> bytes:
    """What the server answers to an opening and then one drop every 20 ms, until it closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", live.port)) as raw:
        raw.settimeout(0.02)
        raw.sendall(opening)
        end = time.monotonic() + GENEROUS_S
        while time.monotonic() < end:
            with suppress(ConnectionError):  # closed to us, yet what was answered before may still lie unread
                raw.sendall(drop)
            try:
                part = raw.recv(1000)
            except TimeoutError:
                continue
            except ConnectionError:
                return answer
            if not part:
                return answer
            answer += part
    raise AssertionError("the connection stayed open")


@pytest.mark.parametrize(
    "opening", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nx: "], ids=["line", "header"]
)
def test_headers_in_drips_are_given_up(opening: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "headers_s", 0.3)
    with live_server() as hasty:
        assert b"" == _dripped(hasty, opening, b"x")


def test_headers_of_a_later_request_are_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "headers_s", 1.0)
    with live_server() as hasty, socket.create_connection(("127.0.0.1", hasty.port)) as raw:
        raw.settimeout(GENEROUS_S)
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        first = message(raw)
        raw.sendall(b"GET /hea")

        assert first.startswith(b"HTTP/1.1 200")
        assert b"" == raw.recv(1000)


STREAMED = b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true}'
END = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("version", "end"),
    [
        pytest.param(b"1.0", END, id="until_the_close"),
        pytest.param(b"1.1", b"%x\r\n%b\r\n0\r\n\r\n" % (len(END), END), id="in_chunks"),
    ],
)
def test_a_stream_is_written_in_the_form_of_its_client(version: bytes, end: bytes) -> None:
    opening = b"POST %b HTTP/%b\r\nhost: x\r\nconnection: close\r\n" % (CHAT.encode(), version)
    with live_server() as live, socket.create_connection(("127.0.0.1", live.port)) as raw:
        raw.settimeout(GENEROUS_S)
        raw.sendall(b"%bcontent-length: %d\r\n\r\n%b" % (opening, len(STREAMED), STREAMED))
        answer = b"".join(iter(lambda: raw.recv(1000), b""))
    head, _, body = answer.partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 ")
    assert (b"transfer-encoding: chunked" in head.lower()) == (version == b"1.1")
    assert body.endswith(end)
    assert body.count(b"\r\n") == (0 if version == b"1.0" else 2 * body.count(b"\n\n") + 2)


def test_a_part_goes_straight_only_into_the_body_that_it_belongs_to() -> None:
    """Two requests come at once; what the first would write later may not fall into the second's answer."""
    straight: list[Callable[[bytes], bool]] = []
    wrote: list[bool] = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        straight.append(scope["extensions"][STRAIGHT])
        wrote.append(straight[-1](b"early"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        wrote.extend(write(part) for write in straight for part in (b"part", b""))
        await send({"type": "http.response.body", "body": b"end", "more_body": False})
        wrote.append(straight[-1](b"late"))

    async def ask() -> bytes:
        config = Config(app)
        config.load()

        def protocol() -> PatientProtocol:
            return PatientProtocol(config, ServerState(), {}, turned_away=lambda: None)

        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        head = b"GET / HTTP/1.1\r\nhost: x\r\n"
        writer.write(head + b"\r\n" + head + b"connection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), GENEROUS_S)
        writer.close()
        server.close()
        return answer

    answers = asyncio.run(ask()).split(b"HTTP/1.1 200 OK\r\n")[1:]

    assert [b"4\r\npart\r\n3\r\nend\r\n0\r\n\r\n"] * 2 == [one.partition(b"\r\n\r\n")[2] for one in answers]
    assert [False, True, False, False, False, False, False, True, False, False] == wrote


def test_an_answer_may_take_longer_than_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "headers_s", 0.1)
    with live_server() as hasty, socket.create_connection(("127.0.0.1", hasty.port)) as raw:
        raw.settimeout(GENEROUS_S)
        raw.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n".encode())
        time.sleep(0.3)
        raw.sendall(b"{}")

        assert message(raw).startswith(b"HTTP/1.1 400")


def test_a_body_in_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "rest_s", 0.3)
    monkeypatch.setattr(body, "PATIENCE", 0.1)
    with live_server(body_timeout_s=10.0) as hasty:
        opening = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{{".encode()

        answer = _dripped(hasty, opening, b" ")

        assert answer.startswith(b"HTTP/1.1 408")
        assert b"not whole after 1 s" in answer


def test_a_refused_body_that_comes_on_in_drips_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "rest_s", 0.3)
    with live_server(max_body_mib=1) as live:
        opening = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {2**21}\r\n\r\n".encode()

        assert _dripped(live, opening, b" ").startswith(b"HTTP/1.1 413")


def test_a_client_that_still_sends_gets_its_refusal_and_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "rest_s", GENEROUS_S)
    with live_server(max_body_mib=1) as live, socket.create_connection(("127.0.0.1", live.port)) as raw:
        raw.settimeout(GENEROUS_S)
        raw.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {2**21}\r\n\r\n".encode())
        raw.sendall(b" " * 2**21)
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = b""
        while b'"status"' not in answer:
            part = raw.recv(1000)
            assert part, answer
            answer += part

    assert [b"413", b"200"] == [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"a": [' + b"[]," * 4_000_000 + b"[]]}", id="lists"),
        pytest.param(b'{"a": ' + b"[" * 12_000_000, id="brackets"),
        pytest.param(b'{"a": [' + b'"",' * 4_000_000 + b'""]}', id="texts"),
        pytest.param(b'{"a": "\\\\", "b": [' + b"1," * 2 * MAX_VALUES + b"1]}", id="behind_an_escape"),
    ],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(content: bytes) -> None:
    began = time.thread_time()
    with pytest.raises(RequestError, match="more than 1048576 values"):
        decode_object(content)

    assert 1.0 > time.thread_time() - began


def test_a_text_may_hold_as_many_commas_and_brackets_as_it_likes() -> None:
    text = '[1, "a\\b"],' * (MAX_VALUES // 2)

    assert {"text": text} == decode_object(json.dumps({"text": text}).encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_values_do_not_hide_in_another_encoding(encoding: str) -> None:
    """Their escaped quotes look unlike ours, so that the marks behind one would count as text."""
    hidden = '{"a": "\\"", "b": [' + "[]," * (MAX_VALUES + 1) + "[]]}"

    with pytest.raises(RequestError, match="the body"):
        decode_object(hidden.encode(encoding))
    with pytest.raises(RequestError, match="is not valid JSON"):
        decode_object('{"a": 1}'.encode(encoding))
    assert {"a": 1} == decode_object('{"a": 1}'.encode("utf-8-sig"))


def test_no_client_is_read_for_long_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a MiB of chunks of one byte, as asyncio reads by itself, is a second of parsing."""
    read: list[int] = []
    take = PatientProtocol.data_received

    def noted(self: PatientProtocol, data: bytes) -> None:
        read.append(len(data))
        take(self, data)

    monkeypatch.setattr(PatientProtocol, "data_received", noted)
    sent = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".encode()
    )
    sent += b"1\r\n \r\n" * 100_000 + b"0\r\n\r\n"
    with live_server() as live, socket.create_connection(("127.0.0.1", live.port)) as raw:
        raw.settimeout(GENEROUS_S)
        raw.sendall(sent)
        answer = b"".join(iter(lambda: raw.recv(1000), b""))

    assert answer.startswith(b"HTTP/1.1 400")
    assert len(sent) == sum(read)
    assert max(read) <= patience.SLICE


def test_grammars_that_take_long_hold_up_only_who_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there are threads for bodies: on those, chats without any grammar waited for them."""
    checked, go_on = Semaphore(0), Event()

    def slow(_: GrammarCheck, __: str) -> str:
        checked.release()
        go_on.wait(GENEROUS_S)
        return ""

    monkeypatch.setattr(GrammarCheck, "wrong", slow)
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    formed = {**chat, "response_format": {"type": "json_object"}, "max_tokens": 1}
    with live_server() as live, ThreadPoolExecutor(serve.READERS + 1) as clients:
        formal = [clients.submit(post, live, CHAT, formed) for _ in range(serve.READERS + 1)]
        under_way = [checked.acquire(timeout=GENEROUS_S) for _ in formal]
        plain = post(live, CHAT, chat)
        waiting = [answer.done() for answer in formal]
        go_on.set()

        assert all(under_way)
        assert 200 == plain.status_code
        assert not any(waiting)
        assert {200} == {answer.result().status_code for answer in formal}


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such bound")
def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "UNREAD_MS", 500)
    with live_server() as hasty, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", hasty.port))
        raw.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 400)
        until(lambda: hasty.server.host.traffic.backlog_bytes() > 0, GENEROUS_S)
        until(lambda: hasty.server.host.traffic.clients() == 0, GENEROUS_S)


REFUSED = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("opening", "later", "answers"),
    [
        pytest.param(REFUSED.encode(), b"zz\r\n", [b"415"], id="after_its_answer"),
        pytest.param(REFUSED.encode() + b"zz\r\n", b"", [b"400"], id="before_its_answer"),
        pytest.param(
            b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", b"\0\r\n\r\n", [b"200", b"400"], id="no_body"
        ),
    ],
)
def test_a_broken_body_ends_its_connection_and_is_no_failure_of_ours(
    opening: bytes, later: bytes, answers: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with live_server() as live, socket.create_connection(("127.0.0.1", live.port)) as raw:
        raw.settimeout(GENEROUS_S)
        raw.sendall(opening)
        answer = message(raw) if later else b""
        raw.sendall(later)
        answer += b"".join(iter(lambda: raw.recv(1000), b""))

    assert answers == [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def test_connections_beyond_the_files_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else asyncio tries and logs each of them for ever: 5 MB of tracebacks a second, and no health."""
    monkeypatch.setattr(patience, "most_clients", lambda: 20)
    with live_server() as live, ExitStack() as stack:
        address = ("127.0.0.1", live.port)
        held = [stack.enter_context(socket.create_connection(address)) for _ in range(20)]
        until(lambda: live.server.host.traffic.clients() == 20, GENEROUS_S)
        with socket.create_connection(address) as late:
            late.settimeout(GENEROUS_S)
            refused = b"".join(iter(lambda: late.recv(1000), b""))
        held[0].close()
        until(lambda: live.server.host.traffic.clients() == 19, GENEROUS_S)
        text = get(live, "/metrics").text

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in refused
    assert b'"code":"overloaded"' in refused
    assert 'ds4_requests_shed_total{reason="clients"} 1\n' in text


@pytest.mark.parametrize(("files", "clients"), [(64, 16), (256, 208), (1024, 896), (65536, 57344)])
def test_files_are_left_for_the_engine(files: int, clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))

    assert clients == patience.most_clients()
