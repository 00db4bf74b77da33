"""Public agent programs change a file through the server: their requests, our answers, a real round trip.

Run by `nox -s clients`, which puts the programs on PATH.  The answers are scripted, because tens of kilobytes
of foreign tool schemas are beyond a small model; everything between the programs and the sampler is real.
SPARKGATE_AGENTS_BASE_URL names a server with a real model instead.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from engine.chat.dsml import render_calls
from engine.chat.request import ToolCall
from engine.config import ServerSettings, Settings, embedded_model
from engine.server.script import load_scripted
from engine.server.serve import Server
from engine.tests.server.live import until

pytestmark = pytest.mark.agents
TIMEOUT_S = 240
TASK = "Create the file notes.txt in the current folder. It holds exactly this one line: made by an agent"
SHELL = "printf 'made by an agent\\n' > notes.txt"
Lines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Desk:
    """Where an agent works: its folder, its home, and the server."""

    folder: Path
    home: Path
    base_url: str

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the person's own settings."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "HOME": str(self.home), "OPENAI_API_KEY": "local", "NO_COLOR": "1"}


@dataclass(frozen=True, slots=True)
class Agent:
    """One program: how it is called, and the answers that let it do the task."""

    program: str
    path: str  # of the API it speaks
    call: Callable[[Desk], tuple[list[str], Mapping[str, str]]]
    lines: Callable[[Desk], Lines]


def block(name: str, **arguments: str) -> str:
    """A tool block as the model writes it."""
    call = ToolCall(None, name, json.dumps(arguments))
    return "I do it.</think>Working." + "".join(segment.text for segment in render_calls([call]))


def call_mini(desk: Desk) -> tuple[list[str], Mapping[str, str]]:
    words = ["mini", "-m", "openai/deepseek-chat", "-t", TASK, "-y", "--exit-immediately"]
    settings = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
    return words, {**settings, "OPENAI_API_BASE": desk.base_url, "OPENAI_BASE_URL": desk.base_url}


def call_codex(desk: Desk) -> tuple[list[str], Mapping[str, str]]:
    provider = f'{{name="local", base_url="{desk.base_url}", wire_api="responses", env_key="OPENAI_API_KEY"}}'
    words = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    words += ["-c", 'model_provider="local"', "-c", f"model_providers.local={provider}"]
    return [*words, "-m", "deepseek-chat", TASK], {"CODEX_HOME": str(desk.home)}


def call_opencode(desk: Desk) -> tuple[list[str], Mapping[str, str]]:
    model = {"name": "Local", "tool_call": True, "limit": {"context": 65536, "output": 4096}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Local",
        "options": {"baseURL": desk.base_url, "apiKey": "local"},
        "models": {"deepseek-chat": model},
    }
    config = {
        "provider": {"local": provider},
        "model": "local/deepseek-chat",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "allow", "bash": "allow"},
    }
    (desk.folder / "opencode.json").write_text(json.dumps(config))
    offline = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return ["opencode", "run", TASK], offline


AGENTS = [
    Agent(
        "mini",
        "/v1/chat/completions",
        call_mini,
        lambda _: [
            {"turn": 0, "write": block("bash", command=SHELL)},
            {"write": block("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")},
        ],
    ),
    Agent(
        "codex",
        "/v1/responses",
        call_codex,
        lambda _: [{"turn": 0, "write": block("exec_command", cmd=SHELL)}, {"write": "Hm.</think>Done."}],
    ),
    Agent(
        "opencode",
        "/v1/chat/completions",
        call_opencode,
        lambda desk: [
            {"when": "Generate a title", "write": "t</think>Notes"},
            {
                "turn": 0,
                "write": block(
                    "write", filePath=str(desk.folder / "notes.txt"), content="made by an agent\n"
                ),
            },
            {"write": "Hm.</think>Done."},
        ],
    ),
]


@contextmanager
def scripted(script: Path) -> Iterator[str]:
    """A server that follows a script, and the address it is not yet told: (its base URL)."""
    settings = Settings(server=ServerSettings(port=0, grace_s=0.0))
    server = Server(settings, lambda: load_scripted(embedded_model(), script, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.host.status == "ok")
        yield f"http://127.0.0.1:{server.port}/v1"
    finally:
        server.stop()
        thread.join(20)


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.program)
def test_an_agent_changes_a_file(agent: Agent, tmp_path: Path) -> None:
    assert shutil.which(agent.program), f"{agent.program} is not on PATH; run nox -s clients"
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    real = os.environ.get("SPARKGATE_AGENTS_BASE_URL")
    script = tmp_path / "script.json"
    script.write_text(json.dumps(agent.lines(Desk(folder, home, ""))))
    with scripted(script) as own:
        desk = Desk(folder, home, real or own)
        words, extra = agent.call(desk)
        done = subprocess.run(
            words,
            cwd=folder,
            env={**desk.environment, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        numbers = httpx2.get(f"{own.removesuffix('/v1')}/metrics", timeout=10).text
    made = folder / "notes.txt"

    assert made.is_file(), done.stdout[-3000:] + done.stderr[-3000:]
    assert "made by an agent\n" == made.read_text()
    assert 0 == done.returncode
    if not real:
        assert 'ds4_tool_parse_total{result="failed"} 0' in numbers
        assert 'ds4_requests_total{outcome="failed"} 0' in numbers
        assert 'ds4_requests_total{outcome="rejected"} 0' in numbers
