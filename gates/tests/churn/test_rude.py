"""Clients without manners: what really goes over the wire, and what the history keeps of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gates.churn.plan import LEAVES, MALFORMED
from gates.churn.rude import Rude
from gates.harness import history
from gates.harness.client import Client
from gates.harness.history import History
from gates.tests.budget_faults import Honest, LyingServer
from gates.tests.keeper import Keeper

BODY = {"messages": [{"role": "user", "content": "a " * 400}], "max_tokens": 400}


class Wire:
    """Listens, answers one connection with the start of a stream, and keeps all that it gets."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.got: list[bytes] = []
        self.ends: list[str] = []
        self.closed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self.listening.accept()
        with connection:
            connection.settimeout(30)
            try:
                while data := connection.recv(65536):
                    self.got.append(data)
                    if b"".join(self.got).endswith(b'"stream": true}'):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 400)
                self.ends.append("closed")
            except ConnectionResetError:
                self.ends.append("reset")
            except TimeoutError:
                self.ends.append("open")
        self.closed.set()


@pytest.fixture
def wire() -> Iterator[Wire]:
    """One connection that is looked at."""
    made = Wire()
    yield made
    made.listening.close()


@pytest.mark.parametrize("kind", LEAVES)
def test_a_client_leaves_as_its_name_says(kind: str, wire: Wire, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{wire.listening.getsockname()[1]}"
    with Client(address, api_key="secret") as client, History(tmp_path / "history.jsonl") as record:
        rude = Rude(client, record, BODY)
        rude.leave(kind)
        still_open = not wire.closed.wait(0.3 if kind.startswith("half_") else 30)
        rude.close()
    wire.closed.wait(30)
    whole = b"".join(wire.got)

    assert still_open is kind.startswith("half_")
    assert (b'"stream": true}' in whole) is not kind.startswith("half_")
    assert ["ok"] == [one.outcome for one in history.operations(history.read(tmp_path / "history.jsonl"))]
    if kind.startswith("reset"):
        assert ["reset"] == wire.ends
    if kind != "half_head":
        assert b"authorization: Bearer secret" in whole


def test_what_is_no_request_is_recorded_with_the_status_it_got(tmp_path: Path) -> None:
    backend = Honest(Keeper(budget_tokens=1000))
    with (
        LyingServer(backend) as server,
        Client(server.base_url) as client,
        History(tmp_path / "history.jsonl") as record,
    ):
        for kind in MALFORMED:
            Rude(client, record, BODY).malformed(kind)
    sent = history.operations(history.read(tmp_path / "history.jsonl"))

    assert list(MALFORMED) == [one.get("sent") for one in sent]
    assert {400} == {one.get("status") for one in sent}


def test_a_server_that_does_not_answer_nonsense_is_recorded_as_such(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with Client(address) as client, History(tmp_path / "history.jsonl") as record:
        Rude(client, record, BODY).malformed("no_json")
    (one,) = history.operations(history.read(tmp_path / "history.jsonl"))

    assert "info" == one.outcome
    assert "ConnectionRefusedError" == one.get("error")


@pytest.mark.parametrize("kind", ["leave_in_stream", "reset_in_stream"])
def test_nobody_leaves_an_answer_that_is_refused(kind: str, tmp_path: Path) -> None:
    with (
        LyingServer(Honest(Keeper(budget_tokens=10))) as server,
        Client(server.base_url) as client,
        History(tmp_path / "history.jsonl") as record,
    ):
        Rude(client, record, BODY).leave(kind)
    (one,) = history.operations(history.read(tmp_path / "history.jsonl"))

    assert "fail" == one.outcome
    assert one.get("message").startswith("HTTP 503")
