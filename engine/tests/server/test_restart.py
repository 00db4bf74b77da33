"""Conversations outlive the server's process: real processes that are killed, through the API."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from engine.config import EngineSettings
from engine.errors import SettingError
from engine.load.process import Server, own_server
from engine.server.loading import open_shelf
from engine.tests.server.live import until

PROMPT = [3 + (7 * index) % 300 for index in range(400)]
PATIENCE = 120.0


Start = Callable[[], AbstractContextManager[Server]]


def starter(model: Path, folder: Path) -> Start:
    """Starts servers that share a folder for what they keep, each in a process of its own."""
    return lambda: own_server(model, SPARKGATE_SPILL_DIR=str(folder / "kept"), SPARKGATE_API_KEY="one,two")


@pytest.fixture(scope="module")
def left(small_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], Path]:
    """The answer of a server that was killed after it stored the conversation, and what it left."""
    folder = tmp_path_factory.mktemp("killed")
    with starter(small_path, folder)() as first:
        answer, kind, _ = ask(first, PROMPT)
        until(lambda: bool(files(folder)), PATIENCE)
        os.kill(first.pid, signal.SIGKILL)
    assert "cold" == kind
    return answer, folder


@pytest.fixture
def server(small_path: Path, left: tuple[list[int], Path], tmp_path: Path) -> Start:
    """Starts servers that find what the killed one left."""
    shutil.copytree(left[1], tmp_path, dirs_exist_ok=True)
    return starter(small_path, tmp_path)


def ask(server: Server, prompt: list[int], *, key: str = "one", **more: Any) -> tuple[list[int], str, int]:
    """Ids of the answer, where the prefix came from, and how much of it there was."""
    body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "return_token_ids": True, **more}
    address = f"http://{server.address.host}:{server.address.port}/v1/completions"
    answer = httpx2.post(address, json=body, headers={"x-api-key": key}, timeout=PATIENCE, verify=False)
    assert 200 == answer.status_code, answer.text
    found = answer.json()
    timings = found["timings"]
    return found["choices"][0]["token_ids"], timings["cache_kind"], timings["prefill_cached"]


def files(folder: Path) -> list[Path]:
    return list((folder / "kept").glob("*.kv"))


def test_a_killed_server_leaves_its_conversations_to_the_next(
    server: Start, left: tuple[list[int], Path], tmp_path: Path
) -> None:
    answer, _ = left
    (tmp_path / "kept" / "spkg-torn.part").write_bytes(b"half")
    longer = [*PROMPT, *answer, 5, 6, 7]
    with server() as second, server() as third:
        stranger = ask(second, longer, key="two")
        found = ask(second, longer)
        fresh = ask(second, longer, cache_prompt=False)
        beside = ask(third, longer)
        text = httpx2.get(
            f"http://{second.address.host}:{second.address.port}/v1/stats",
            headers={"x-api-key": "one"},
            timeout=PATIENCE,
            verify=False,
        ).text

    assert ("cold", 0) == stranger[1:]
    assert ("disk", "disk") == (found[1], beside[1])
    assert found[2] >= len(PROMPT) - 1
    assert fresh[0] == found[0] == beside[0] == stranger[0]
    assert "recalls_used         1" in text
    assert [] == list((tmp_path / "kept").glob("*.part"))


def test_a_damaged_file_is_a_computation_after_a_restart(
    server: Start, left: tuple[list[int], Path], tmp_path: Path
) -> None:
    answer, _ = left
    for path in files(tmp_path):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with server() as second:
        again, kind, cached = ask(second, PROMPT)

    assert (answer, "cold", 0) == (again, kind, cached)


def test_a_folder_that_cannot_be_used_stops_the_start_with_one_line(small_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "SPARKGATE_SPILL_DIR": str(tmp_path / "file" / "below")}
    words = [sys.executable, "-m", "engine", "serve", str(small_path), "--port", "0"]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert 2 == found.returncode
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith("engine: engine.spill_dir ")
    assert "cannot be used: Not a directory; name a directory of your own" in last


@pytest.mark.parametrize("name", ["~nobody-of-this-name/kept", "a\0b", "x" * 300])
def test_a_folder_whose_name_cannot_be_is_refused_by_its_key(name: str) -> None:
    with pytest.raises(SettingError, match=r"engine\.spill_dir .* cannot be used: .*; name a directory"):
        open_shelf(EngineSettings(spill_dir=name), "model")
