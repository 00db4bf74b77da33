"""Fixtures of the harness tests: the echo gate in place of the real ones, and a fake server to judge."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from gates import registry
from gates.harness.launch import Command
from gates.plugin import GatePlugin
from gates.profile import Profile, checked
from gates.spec import GateSpec, Key, MeasureSpec

ECHO = GateSpec(
    name="echo",
    title="Echo: the last word comes back",
    room="gates.tests.echo",
    cost="cheap",
    measures=(MeasureSpec("echo.right_ratio", "The last word comes back", "higher"),),
    keys=(Key("words", "count"),),
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The echo room is for the gate plugin, not for the test session."""
    gated = any(isinstance(plugin, GatePlugin) for plugin in config.pluginmanager.get_plugins())
    return True if collection_path.name == "echo" and not gated else None


def echo_tables(**changes: object) -> dict[str, dict[str, object]]:
    """Tables of a profile that runs the echo gate alone; changes go into its own table."""
    run: dict[str, object] = {
        "gates": ["echo"],
        "on_demand": [],
        "seed": 7,
        "model": "given",
        "selection": True,
        "budget_minutes": 1,
        "max_budget_ratio": 1.0,
        "max_leftover_count": 0,
        "give_up_ratio": 5,
    }
    server: dict[str, object] = {
        "context_tokens": 4096,
        "start_seconds": 20,
        "stop_seconds": 1,
        "request_seconds": 2,
    }
    echo: dict[str, object] = {"words": 4, "budget_minutes": 1, "min_right_ratio": 1.0, **changes}
    return {"run": run, "server": server, "echo": echo}


def fake_command(fault: str = "none", *, after: int = 0) -> Command:
    """A server command that starts the fake server with a fault."""
    module = ("-m", "gates.tests.fake_server", "--port", "{port}")
    return Command((sys.executable, *module, "--fault", fault, "--after", str(after)))


@pytest.fixture(scope="session", autouse=True)
def never_synced() -> Iterator[None]:
    """No test needs its files after a power cut, and a disk takes 7 ms to keep each line of a history."""
    with mock.patch("os.fsync"):
        yield


@pytest.fixture
def short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 600 pieces tells a small tokenizer as well as one of 3,000, which costs a second."""
    monkeypatch.setattr("gates.needle.deep.PROBE_PIECES", (200, 600))


@pytest.fixture
def echo_gate(monkeypatch: pytest.MonkeyPatch) -> GateSpec:
    """The registry holds the echo gate alone."""
    monkeypatch.setattr(registry, "GATES", (ECHO,))
    return ECHO


@pytest.fixture
def echo_profile(echo_gate: GateSpec) -> Profile:
    """A profile that runs the echo gate."""
    del echo_gate
    return checked("echo", echo_tables(), "0" * 64)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A file that stands for a model; the fake server never opens it."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    return path
