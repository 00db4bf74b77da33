"""The load profile: a right server passes, and each way of being wrong is found."""

from __future__ import annotations

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cli import main
from engine.config import EngineSettings
from engine.errors import EngineError, SettingError
from engine.load import drive
from engine.load.bare import decode
from engine.load.client import Address, Reply, stream
from engine.load.drive import Round
from engine.load.plan import Item, plan
from engine.load.process import own_process
from engine.load.report import costs, percentiles, summary, table, wrong
from engine.load.run import Options, run
from engine.runner import Runner
from engine.tests.server.live import Script, live_server

ITEM = Item(1, {}, None)
ALONE = {1: [7, 8, 9]}
RIGHT = Reply(status=200, ids=[7, 8, 9], moments=[(0.1, 1), (0.2, 2)], finish="stop")


def judged(reply: Reply, settled_s: float | None = 0.1) -> list[str]:
    found = Round(16, ((ITEM, reply),), 2.0, settled_s, None)
    return wrong([summary(found, ALONE)])


def test_a_right_server_passes_under_load() -> None:
    script = Script("Let me think.</think>" + "word " * 30)
    with live_server(script, engine=EngineSettings(max_sequences=4)) as live:
        wanted = Options(Path(), base_url=live.base_url, clients=(4, 8), requests=16, rounds=1)
        found = run(wanted, lambda _: None)

    assert [] == found["wrong"]
    assert [1, 4, 8] == [entry["clients"] for entry in found["rounds"]]
    assert found["rounds"][1]["left"] > 0
    assert {"p50", "p95", "p99"} == found["rounds"][1]["ttft_ms"].keys()
    assert 4 == len(table(found["rounds"]).splitlines())
    assert "None" not in table(found["rounds"]), "the memory of a server elsewhere is not known"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        pytest.param(replace(RIGHT, ids=[7, 8, 1]), "crossed", id="another_answer"),
        pytest.param(replace(RIGHT, ids=[7, 8]), "crossed", id="cut_short"),
        pytest.param(replace(RIGHT, ids=[7], finish=None, left=True), "", id="left_in_the_middle"),
        pytest.param(replace(RIGHT, ids=[8], finish=None, left=True), "crossed", id="left_with_another"),
        pytest.param(replace(RIGHT, ids=[7], finish=None), "lost", id="no_end"),
        pytest.param(replace(RIGHT, error="boom"), "lost", id="failed"),
        pytest.param(Reply(status=500, error="x"), "lost", id="refused_with_500"),
        pytest.param(Reply(status=503, error="x"), "", id="refused_with_503"),
        pytest.param(RIGHT, "", id="right"),
    ],
)
def test_each_way_of_being_wrong_is_found(reply: Reply, says: str) -> None:
    found = judged(reply)

    assert bool(says) == bool(found)
    assert says in "".join(found)


def test_work_that_goes_on_for_nobody_is_found() -> None:
    assert "still run" in judged(RIGHT, settled_s=None)[0]
    assert "still run" in judged(RIGHT, settled_s=3.0)[0]


def test_tokens_that_came_at_once_share_their_gap() -> None:
    assert [pytest.approx(0.05)] * 2 == RIGHT.gaps_s
    assert 0.1 == RIGHT.first_s


def test_percentiles_are_values_that_occurred() -> None:
    assert {"p50": 50.0, "p95": 95.0, "p99": 99.0} == percentiles([n / 1000 for n in range(100, 0, -1)])
    assert {} == percentiles([])


def test_a_seed_is_one_plan_of_prompts_unlike_each_other() -> None:
    items = plan(60, 3, context=4000)

    assert items == plan(60, 3, context=4000)
    assert 60 == len({item.body["messages"][0]["content"] for item in items})
    assert 3 < sum(item.leave_after is not None for item in items) < 25


def test_a_loop_that_only_sends_gives_every_client_the_tokens_of_its_row(small_path: Path) -> None:
    async def ask(address: Address) -> list[Reply]:
        return await asyncio.gather(*(stream(address, {}) for _ in range(2)))

    with own_process("-m", "engine.load.sender", str(small_path), "2", "6", "5") as sender:
        rounds = [asyncio.run(ask(sender.address)) for _ in range(2)]

    expected: list[int] = []
    decode(Runner(small_path), 1, 6, 5, expected.extend)

    assert [[expected] * 2] * 2 == [[reply.ids for reply in replies] for replies in rounds]
    assert {"length"} == {reply.finish for replies in rounds for reply in replies}


def heard(*parts: bytes) -> Reply:
    """What the client takes from a server that sends these parts one after the other and then hangs up."""

    def answer(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client:
            client.recv(4096)
            for part in parts:
                client.sendall(part)
                time.sleep(0.02)  # so that the client gets each part by itself

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer, listening)
        found = asyncio.run(stream(Address("127.0.0.1", listening.getsockname()[1]), {}))
        answered.result()
    return found


def chunk(event: bytes) -> bytes:
    frame = b"data: " + event + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(frame), frame)


WHOLE = chunk(b'{"choices": [{"token_ids": [7], "finish_reason": "stop"}]}') + chunk(b"[DONE]")


def test_a_header_that_ends_in_nought_does_not_end_an_answer() -> None:
    found = heard(b"HTTP/1.1 200 OK\r\nx-request-id: a0\r\n\r\n", WHOLE, b"0\r\n\r\n")

    assert ([7], "stop", None) == (found.ids, found.finish, found.error)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((b"HTTP/1.1 200 OK\r\n\r\n", WHOLE[:40]), id="cut_off"),
        pytest.param((b"HTTP/1.1 200 OK\r\n\r\n", chunk(b"{") + b"0\r\n\r\n"), id="no_json"),
        pytest.param((b"HTTP/1.1 200 OK\r\n\r\n", b"no chunk\r\n\r\n0\r\n\r\n"), id="no_chunk"),
        pytest.param((b"nothing of HTTP\r\n\r\n",), id="no_status"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_lost_one(parts: tuple[bytes, ...]) -> None:
    assert ["1 answers lost with 16 clients"] == judged(heard(*parts))


def test_an_answer_of_a_server_that_is_gone_is_a_lost_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = Address("127.0.0.1", free.getsockname()[1])

    assert "ConnectionRefusedError" == asyncio.run(stream(gone, {})).error


def test_costs_are_told_in_percent() -> None:
    times = {"rows": 16, "bare_ms": 10.0, "served_ms": 10.4, "bare_cpu_s": 1, "served_cpu_s": 1}
    shares = {"wall": 0.04, "cpu": 0.03, "sent_ms": 10.2, "wall_beside_sender": 0.02}
    [line] = costs([{**times, **shares}])

    assert "+4.0%" in line
    assert "(10.2 ms) +2.0%" in line
    assert "+3.0%" in line


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "https://127.0.0.1", "http://", "http://[::1:9", "http://a:x"]
)
def test_another_kind_of_address_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="--base-url"):
        Address.of(url)


def test_a_server_that_is_not_there_or_of_another_kind_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert 1 == main(["load", "--base-url", url])
    assert "cannot be reached: Connection refused\n" in capsys.readouterr().err

    async def foreign(_address: Address, _path: str) -> str:
        return '{"data": [{"id": "x"}]}'

    monkeypatch.setattr(drive, "fetch", foreign)
    with pytest.raises(EngineError, match="names no context_length"):
        asyncio.run(drive.context(Address("x", 1)))


def test_a_number_of_clients_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["load", "--clients", "many"])
    assert "--clients" in capsys.readouterr().err


def test_costs_beside_a_server_elsewhere_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["load", "--overhead", "1", "--base-url", "http://127.0.0.1:9"])
    assert "leave --base-url out" in capsys.readouterr().err
