"""The command line end to end, on a random model file."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from engine.cli import main
from engine.errors import EngineError

CARD = ("bench", "--synthetic", "v4-flash")


def test_run_prints_an_answer_and_its_rates(small_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", str(small_path), "-p", "Hello", "-n", "4", "--threads", "1"])
    printed = capsys.readouterr()

    assert 0 == code
    assert "tok/s" in printed.err


def test_bench_measures_every_depth(small_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bench", str(small_path), "--depths", "8,20", "--decode", "3", "--json", "--threads", "1"])
    report = json.loads(capsys.readouterr().out)

    assert 0 == code
    assert [(8, 2), (20, 2)] == [(row["depth"], row["decode_tokens"]) for row in report["depths"]]
    assert all(row["prefill_tok_s"] > 0 and row["decode_tok_s"] > 0 for row in report["depths"])


def test_a_bench_that_is_cut_short_leaves_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_plan: object, _say: object, keep: Callable[[dict[str, object]], None]) -> None:
        keep({"decode": [1]})
        keep({"decode": [1], "rows": [2]})
        raise EngineError("the card went away")

    monkeypatch.setattr("engine.device.bench.measure", cut)
    out = tmp_path / "report.json"

    assert 1 == main([*CARD, "--out", str(out)])
    assert {"decode": [1], "rows": [2]} == json.loads(out.read_text())


def test_a_synthetic_model_takes_no_place_of_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert 2 == main([*CARD, "--layers", "1", "--write", str(tmp_path / "pipe")])
    assert "--write is" in capsys.readouterr().err


def test_a_full_disk_costs_neither_the_report_of_a_bench_nor_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_plan: object, _say: object, keep: Callable[[dict[str, object]], None]) -> dict[str, object]:
        keep({"decode": [1]})
        return {"decode": [1], "rows": [2]}

    def refuse(_: Path, __: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("engine.device.bench.measure", measure)
    monkeypatch.setattr(Path, "replace", refuse)
    out = tmp_path / "report.json"
    out.write_text("before")
    code = main([*CARD, "--out", str(out)])
    printed = capsys.readouterr()

    assert 1 == code
    assert {"decode": [1], "rows": [2]} == json.loads(printed.out)
    assert 2 == printed.err.count("No space left on device")
    assert ["before"] == [path.read_text() for path in tmp_path.iterdir()]


def test_inspect_answers_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["inspect", "--spec", "v4-flash", "--memory", "119GiB"])
    printed = capsys.readouterr().out

    assert 0 == code
    assert "13760 bytes a token" in printed
    assert "largest context: 1048576 tokens" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["run", "none.gguf", "-p", "x"], 2, "none.gguf does not exist", id="no_file"),
        pytest.param(["run", __file__, "-p", "x"], 1, "GGUF", id="not_a_model"),
        pytest.param(["inspect", "--spec", "x"], 2, "v4-flash", id="no_such_shape"),
        pytest.param(["inspect", "--spec", "v4-pro", "--memory", "9"], 2, "119GiB", id="size"),
        pytest.param(["serve", __file__, "--port", "x"], 2, "server.port", id="port"),
        pytest.param(["--port", "x"], 2, "server.port", id="serving_is_the_default"),
        pytest.param(["serve", "--script", "none.json"], 2, "none.json cannot be read", id="no_script"),
        pytest.param(["chat", "--base-url", "x"], 2, "--base-url", id="base_url"),
        pytest.param(["bench", __file__, "--depths", "a"], 2, "--depths", id="depths"),
        pytest.param(["bench", __file__, "--decode", "1"], 2, "--decode", id="decode"),
        pytest.param([*CARD[:2], "x"], 2, "v4-flash", id="synthetic"),
        pytest.param([*CARD[:2], "v4-pro"], 1, "hidden is 7168, no power of two", id="shape_without_kernels"),
        pytest.param([*CARD, "--layers", "44"], 2, "1 to 43", id="layers"),
        pytest.param([*CARD, "--rows", "2,x"], 2, "--rows", id="rows"),
        pytest.param([*CARD, "--rows", "33"], 2, "at most 32 rows", id="too_many_rows"),
        pytest.param([*CARD, "--decode", "0"], 2, "--decode", id="no_steps"),
        pytest.param([*CARD, "--prefill", "100"], 2, "4096", id="half_a_chunk"),
        pytest.param([*CARD, "--out", "none/report.json"], 2, "--out", id="no_folder"),
        pytest.param([*CARD, "--depths", ","], 2, "at least one", id="no_depths"),
        pytest.param(["bench", "--memory", "--depths", ","], 2, "at least one", id="no_depths_of_memory"),
        pytest.param(["run", __file__, "-p", "x", "-n", "0"], 2, "--max-tokens", id="max_tokens"),
    ],
)
def test_wrong_input_gives_one_clear_message(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code == main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("package", ["torch", "starlette", "uvicorn"])
def test_help_and_inspect_import_nothing_heavy(package: str) -> None:
    program = (
        "import sys; from engine.cli import main; "
        f"main(['inspect', '--spec', 'v4-flash']); print(); print({package!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "False" == done.stdout.split()[-1]


def test_serve_answers_health_while_it_loads_and_chats_afterwards(small_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "engine", "serve", "--model", str(small_path), "--port", str(port)]
    process = subprocess.Popen([*words, "--threads", "1"], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_for_health(base, process)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "seed": 3}
        answers = [
            httpx2.post(f"{base}/v1/chat/completions", json=body, timeout=60, verify=False).json()
            for _ in range(2)
        ]
        process.terminate()

        assert answers[0]["choices"] == answers[1]["choices"]
        prompt = answers[0]["usage"]["prompt_tokens"]
        assert prompt - 1 == answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert 0 == process.wait(60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_lets_open_answers_finish_and_says_so(tmp_path: Path, sent: int, code: int) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"write": "I say.</think>" + "word " * 6000}]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "engine", "serve", "--script", str(script), "--port", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_for_health(base, process)
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        with httpx2.stream(
            "POST", f"{base}/v1/chat/completions", json=body, timeout=60, verify=False
        ) as answer:
            lines = answer.iter_lines()
            first = next(line for line in lines if line.startswith("data:"))
            process.send_signal(sent)
            rest = [line for line in lines if line.startswith("data:")]
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert "assistant" in first
    assert "data: [DONE]" == rest[-1]
    assert code == process.returncode
    assert b"ending: 1 open request may take up to 30 s" in said
    assert said.endswith(b"ended; every request was answered\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full file")
def test_nobody_who_reads_the_messages_is_no_reason_to_fail(small_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "engine", "serve", str(small_path), "--port", str(port)]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(words, stderr=full)
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_for_health(base, process)
        body = {"prompt": [5] * 50, "max_tokens": 200, "stream": True, "temperature": 2}
        with httpx2.stream("POST", f"{base}/v1/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if line.startswith("data:"))
            process.terminate()
            *_, last = (line for line in lines if line)

        assert "data: [DONE]" == last
        assert 0 == process.wait(60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_second_signal_ends_at_once_while_the_model_computes(sent: int, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "engine", "serve", "--port", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_for_health(base, process)
        schema = {"type": "array", "items": {"type": "integer"}, "minItems": 10_000}
        form = {"type": "json_schema", "json_schema": {"name": "long", "schema": schema}}
        body = {"messages": [{"role": "user", "content": "Hi"}], "n": 8, "stream": True, "think": False}
        body["response_format"] = form
        with httpx2.stream("POST", f"{base}/v1/chat/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()  # kept: without it the answer would be closed
            next(line for line in lines if line.startswith("data:"))
            process.send_signal(sent)
            time.sleep(0.3)
            process.send_signal(sent)
            _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert code == process.returncode
    assert said.endswith(b"ended; 8 open requests cut off\n")
    assert b"Traceback" not in said


def _wait_for_health(base: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx2.get(f"{base}/health", timeout=5, verify=False).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server was not ready; exit code {process.poll()}")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_standard_file_is_not_replaced_by_another(closed: str) -> None:
    program = (
        "import os, sys; from engine.cli import main; main(['inspect', '--spec', 'v4-flash']);"
        "sys.exit(10 + sum(os.fstat(n).st_rdev == os.stat(os.devnull).st_rdev for n in range(3)))"
    )
    words = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.communicate(timeout=60)

    assert 10 + closed.count("-") == run.returncode


def test_a_port_that_is_taken_is_named(small_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = main(["serve", str(small_path), "--port", str(port)])

    assert 2 == code
    assert f"port {port}" in capsys.readouterr().err


def test_a_server_that_cannot_load_ends_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    words = [sys.executable, "-m", "engine", "serve", str(broken), "--port", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert 1 == done.returncode
    assert "broken.gguf" in done.stderr
    assert "Traceback" not in done.stderr
