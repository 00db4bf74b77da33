"""Tests of the HTTP client against the fake server and against streams put together by hand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.tests.server.wire import message
from gates.harness import launch
from gates.harness.client import Client
from gates.harness.reply import CutShort, DeadlinePassed, Gone, Malformed, Refused, Usage
from gates.tests.fake_server import FakeServer

ASK = [{"role": "user", "content": "Say word7"}]


@contextmanager
def fake(fault: str = "none") -> Iterator[Client]:
    """A client of a fake server in a thread."""
    with FakeServer(0, fault=fault) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_address[1]}", deadline_s=5) as client:
            yield client
        server.shutdown()
        thread.join()


@contextmanager
def raw(serve: Callable[[socket.socket], None]) -> Iterator[Client]:
    """A client of a socket that does what `serve` does to its first connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                message(connection)
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", deadline_s=0.5) as client:
            yield client
        thread.join()


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_is_the_same_streamed_and_whole(stream: bool) -> None:
    with fake() as client:
        reply = client.chat(ASK, max_tokens=8, stream=stream)

    assert ("You said word7", "stop", Usage(10, 3, 4)) == (reply.text, reply.finish_reason, reply.usage)


def test_a_streamed_reply_has_its_first_token_before_its_end() -> None:
    with fake() as client:
        reply = client.chat(ASK, max_tokens=8)

    assert reply.first_token_s is not None
    assert 0 < reply.first_token_s <= reply.seconds
    assert (3, 3) == (reply.fragments, len(reply.fragment_s))


def test_a_refusal_keeps_status_code_and_message() -> None:
    with fake("refuses") as client, pytest.raises(Refused, match="HTTP 503: no room") as error:
        client.chat(ASK, max_tokens=8)

    assert (503, "overloaded", True) == (error.value.status, error.value.code, error.value.definite)


def test_a_stream_without_its_end_keeps_what_had_come() -> None:
    with fake("cut") as client, pytest.raises(CutShort, match="without a finish reason") as error:
        client.chat(ASK, max_tokens=8)

    assert "You" == error.value.text


THOUGHTLESS = {"thinking": {"type": "disabled"}, "return_token_ids": True}


@pytest.mark.parametrize("stream", [True, False])
def test_members_that_a_server_refuses_by_name_are_left_out_from_then_on(stream: bool) -> None:
    with fake("strict") as client:
        replies = [client.chat(ASK, max_tokens=8, stream=stream, extra=THOUGHTLESS) for _ in range(2)]
        plain = client.chat(ASK, max_tokens=8, stream=stream)

        assert frozenset(THOUGHTLESS) == client.left_out
    assert [("return_token_ids", "thinking")] * 2 == [reply.left_out for reply in replies]
    assert () == plain.left_out


def test_a_refusal_that_names_what_the_dialect_has_stands() -> None:
    with fake("strict") as client, pytest.raises(Refused, match="Unexpected field: 'top_p'"):
        client.chat(ASK, max_tokens=8, extra={"top_p": 0.5, **THOUGHTLESS})


def test_a_member_whose_absence_changes_nothing_is_sent_again() -> None:
    with fake("refuses_thoughts") as client:
        with pytest.raises(Refused, match="no room for thinking"):
            client.chat(ASK, max_tokens=8, extra=THOUGHTLESS)

        assert frozenset() == client.left_out


def test_an_answer_in_another_form_is_malformed() -> None:
    with fake("malformed") as client, pytest.raises(Malformed, match=r"not a chat\.completion"):
        client.chat(ASK, max_tokens=8, stream=False)


def test_models_and_health_are_read() -> None:
    with fake() as client:
        assert client.healthy()
        assert [("fake", 4096)] == [(model.id, model.context_tokens) for model in client.models()]


def test_nobody_there_is_gone_and_not_a_refusal() -> None:
    with Client(f"http://127.0.0.1:{launch.free_port()}") as client:
        assert not client.healthy()
        assert not client.listening()
        with pytest.raises(Gone) as error:
            client.chat(ASK, max_tokens=8)

    assert not error.value.definite


def test_a_connection_cut_before_the_answer_is_gone() -> None:
    with raw(lambda _: None) as client, pytest.raises(Gone):
        client.chat(ASK, max_tokens=8)


def test_a_server_that_never_answers_passes_the_deadline() -> None:
    release = threading.Event()

    def wait(_: socket.socket) -> None:
        release.wait(5)

    with raw(wait) as client:
        with pytest.raises(DeadlinePassed):
            client.chat(ASK, max_tokens=8, deadline_s=0.2)
        release.set()


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_drips_bytes_for_ever_passes_the_deadline(stream: bool) -> None:
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while not stop.wait(0.02):
            try:
                connection.sendall(b": wait\n")
            except OSError:
                return

    with raw(drip) as client:
        with pytest.raises(DeadlinePassed):
            client.chat(ASK, max_tokens=8, deadline_s=0.3, stream=stream)
        stop.set()


@pytest.mark.parametrize("path", ["health", "models", "metrics"])
def test_a_body_that_drips_for_ever_hangs_no_look_at_the_server(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gates.harness.client.SMALL_REPLY_S", 0.3)
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not stop.wait(0.02):
            try:
                connection.sendall(b"{")
            except OSError:
                return

    with raw(drip) as client:
        if path == "health":
            assert not client.healthy(timeout_s=0.3)
        else:
            with pytest.raises(DeadlinePassed):
                getattr(client, path)()
        stop.set()


def test_the_address_may_end_in_v1() -> None:
    with Client("http://127.0.0.1:1/v1/") as client:
        assert "http://127.0.0.1:1" == client.base_url


def answered(body: bytes, *, kind: str = "application/json") -> Callable[[socket.socket], None]:
    """Serve one answer of this kind under a status that says that all is well."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return lambda connection: connection.sendall(head.encode() + body)


def test_an_error_under_a_good_status_is_a_refusal_with_its_words() -> None:
    for stream in (True, False):
        serve = answered(b'{"error": {"message": "no such model"}}')
        with raw(serve) as client, pytest.raises(Refused, match="HTTP 200: no such model"):
            client.chat(ASK, max_tokens=8, stream=stream)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/json", b'{"choices": []}', "the answer is one object"),
        ("text/html; charset=utf-8", b"<h1>Sign in</h1>", "the answer is <h1>Sign in</h1>"),
    ],
)
def test_an_answer_that_is_no_stream_is_named_as_what_it_is(kind: str, body: bytes, said: str) -> None:
    with raw(answered(body, kind=kind)) as client, pytest.raises(Malformed, match=said):
        client.chat(ASK, max_tokens=8)


def flood(connection: socket.socket) -> None:
    """A body of many MiB, as far as somebody reads it."""
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"data: {" * (4 << 20))


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_never_ends_fills_no_memory(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gates.harness.client.MOST_BYTES", 1 << 18)
    with raw(flood) as client, pytest.raises(Malformed, match="more than 256 KiB"):
        client.chat(ASK, max_tokens=8, stream=stream, deadline_s=20)


def test_a_look_at_a_server_that_floods_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gates.harness.client.MOST_BYTES", 1 << 18)
    with raw(flood) as client:
        assert not client.healthy(timeout_s=20)
    with raw(flood) as client:
        assert client.listening()


def test_certificates_are_read_once_whatever_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    Client("http://127.0.0.1:1").close()
    monkeypatch.setattr("gates.harness.client.httpx2.create_ssl_context", None)

    with Client("http://127.0.0.1:1") as further, further.fresh() as again:
        assert again.base_url == further.base_url
