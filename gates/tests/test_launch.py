"""Tests of starting and ending the server under test: nothing may be left behind, whatever it does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from gates.errors import LaunchError, UsageError
from gates.harness import launch, probe
from gates.harness.client import Client
from gates.harness.launch import Attached, Command, Launched
from gates.tests.conftest import fake_command


def start(tmp_path: Path, fault: str = "none", *, start_s: float = 20.0, stop_s: float = 5.0) -> Launched:
    port = launch.free_port()
    words = fake_command(fault).filled(model=None, port=port, context_tokens=1)
    log = tmp_path / "server.log"
    return Launched.start(words, port=port, log=log, start_s=start_s, stop_s=stop_s, env=os.environ)


def test_a_server_is_healthy_when_start_returns_and_gone_after_the_stop(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        assert server.alive()
        assert server.pid is not None
        assert os.getpgid(server.pid) != os.getpgid(0)

    assert not server.alive()
    assert () == server.stop()


def test_start_waits_for_a_slow_server(tmp_path: Path) -> None:
    before = time.monotonic()
    with start(tmp_path, "slow_start"):
        assert time.monotonic() - before >= 0.5


def test_a_server_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="ended with code 7 before it was healthy\nno such model"):
        start(tmp_path, "ends_at_once")


def test_a_server_that_is_never_healthy_is_ended(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"not healthy within 0\.6 s"):
        start(tmp_path, "never_healthy", start_s=0.6)

    mine = psutil.Process().children(recursive=True)
    assert [] == [child for child in mine if "fake_server" in " ".join(child.cmdline())]


def test_a_server_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    server = start(tmp_path, "ignores_term", stop_s=0.3)

    assert () == server.stop()
    assert not server.alive()


def test_a_child_in_a_session_of_its_own_is_named_as_left_behind_and_ended(tmp_path: Path) -> None:
    server = start(tmp_path, "leaves_child", stop_s=0.3)
    assert server.pid is not None
    (child,) = psutil.Process(server.pid).children()

    (left,) = server.stop()

    assert left.startswith(f"process {child.pid} ")
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(5)
    assert not child.is_running()


def test_a_port_in_use_is_not_free() -> None:
    port = launch.free_port()
    assert launch.port_free(port)

    with socket.create_server(("127.0.0.1", port)):
        assert not launch.port_free(port)


def test_the_server_dies_with_its_parent_even_after_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from pathlib import Path; from gates.tests.test_launch import start\n"
        "server = start(Path(sys.argv[1])); print(server.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        gone, _ = psutil.wait_procs([server], timeout=10)

    assert [server] == gone or server.status() == psutil.STATUS_ZOMBIE


def test_the_log_tail_is_bounded(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        (tmp_path / "server.log").write_bytes(b"x" * 100_000)

        assert launch.TAIL_BYTES == len(server.log_tail())


def test_places_in_a_command_are_filled_in() -> None:
    command = Command.parse("serve '{model}' --listen 127.0.0.1:{port} --ctx {context} --name 'a b'")

    words = command.filled(model=Path("/m.gguf"), port=7, context_tokens=9)
    assert ["serve", "/m.gguf", "--listen", "127.0.0.1:7", "--ctx", "9", "--name", "a b"] == words


def test_a_command_that_takes_no_port_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no \{port\}"):
        Command.parse("serve --port 80")


def test_an_attached_server_is_looked_at_and_never_stopped(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        attached = Attached(server.base_url)

        assert attached.alive()
        assert () == attached.stop()
        assert server.alive()
    assert not attached.alive()


@pytest.mark.parametrize("models", [200, 404])
def test_a_server_without_a_health_path_is_asked_for_its_models(models: int) -> None:
    class NoHealth(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(models if self.path == "/v1/models" else 404)
            self.send_header("content-length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), NoHealth) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{server.server_port}") as client:
            assert (models == 200) is client.healthy()
        server.shutdown()


@pytest.mark.parametrize(
    ("fault", "within_s", "ready"), [("slow_start", 20, True), ("never_healthy", 0.5, False)]
)
def test_a_server_that_still_loads_is_waited_for(fault: str, within_s: float, ready: bool) -> None:
    words = fake_command(fault).filled(model=None, port=(port := launch.free_port()), context_tokens=1)
    process = subprocess.Popen(words)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            while not client.listening():
                time.sleep(0.01)
            assert ready is client.ready(within_s=within_s)
    finally:
        process.kill()
        process.wait()


def test_memory_is_anonymous_plus_swapped_and_knows_the_children(tmp_path: Path) -> None:
    proc = tmp_path / "proc" / str(os.getpid())
    proc.mkdir(parents=True)
    (proc / "status").write_text("Name:\tx\nVmRSS:\t900 kB\nRssAnon:\t100 kB\nVmSwap:\t20 kB\n")

    held = probe.memory(os.getpid(), proc=tmp_path / "proc")
    assert held is not None
    assert 120 * 1024 == held.held_bytes


def test_memory_of_a_process_that_is_gone_is_not_known() -> None:
    assert probe.memory(2**22 + 1) is None


def test_the_host_record_names_no_host() -> None:
    record = str(probe.host())

    assert os.uname().nodename not in record or len(os.uname().nodename) < 3
