"""docs/serving.md says what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from engine.config import EngineSettings, ServerSettings
from engine.server.app import build_routes
from engine.server.service import Host
from engine.tests.server.live import Script, live_server

DOCUMENT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def test_every_setting_is_listed_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `((?:engine|server)\.\w+)` \| (.+?) \|$", DOCUMENT, re.M))
    defaults = {
        f"{room}.{entry.name}": getattr(settings, entry.name)
        for room, settings in (("engine", EngineSettings()), ("server", ServerSettings()))
        for entry in fields(settings)
    }

    assert list(defaults) == list(rows)
    for key, value in defaults.items():
        assert not value or str(value) == rows[key].split(" ")[0], key


def test_every_path_is_listed() -> None:
    routes = build_routes(Host(), ServerSettings(), fingerprint="x")
    served = {route.path.replace(":path", "") for route in routes}
    listed = set(re.findall(r"`(/[^`]*)`", DOCUMENT.split("## Chat requests")[0])) - {"/v1", "/anthropic"}
    spellings = {path.removeprefix("/v1") for path in listed} | {f"/anthropic{path}" for path in listed}

    assert listed <= served <= listed | spellings


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", DOCUMENT, re.S), ids=["openai", "anthropic"]
)
def test_the_programs_to_copy_run(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    with live_server(Script("Hm.</think>Hello back.")) as live:
        exec(compile(block.replace("http://127.0.0.1:8000", live.base_url), "serving.md", "exec"), {})

    assert "Hello back.\n" == capsys.readouterr().out.removeprefix("Hm.")
