"""Scripts: recorded output through everything that is real."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import ServerSettings, Settings, embedded_model
from engine.errors import SettingError
from engine.server.script import load_scripted, read_script
from engine.server.serve import Server
from engine.tests.server.live import Live, until
from engine.tests.server.test_openai import BLOCK
from engine.tests.server.wire import get, post, stream

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
LINES: list[dict[str, Any]] = [
    {"when": "title", "write": "t</think>A title"},
    {"turn": 0, "write": f"I look.</think>One moment.{BLOCK}"},
    {"turn": 1, "write": "I have it.</think>Done: ls && pwd"},
]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = tmp_path_factory.mktemp("script") / "lines.json"
    path.write_text(json.dumps(LINES))
    settings = Settings(server=ServerSettings(port=0, grace_s=0.0))
    server = Server(settings, lambda: load_scripted(embedded_model(), path, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.host.status == "ok")
    yield Live(server, f"http://127.0.0.1:{server.port}")
    server.stop()
    thread.join(20)


def test_a_conversation_goes_through_its_lines(live: Live) -> None:
    messages: list[Any] = [{"role": "user", "content": "Where?"}]
    answer = post(live, CHAT, {"messages": messages, "tools": TOOLS}).json()
    first = answer["choices"][0]
    call = first["message"]["tool_calls"][0]
    messages += [first["message"], {"role": "tool", "tool_call_id": call["id"], "content": "/srv"}]
    second = post(live, CHAT, {"messages": messages, "tools": TOOLS}).json()

    assert ("tool_calls", '{"command": "ls && pwd"}') == (
        first["finish_reason"],
        call["function"]["arguments"],
    )
    assert "Done: ls && pwd" == second["choices"][0]["message"]["content"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > answer["usage"]["prompt_tokens"]


def test_conditions_and_thinking_are_kept(live: Live) -> None:
    ask = {"messages": [{"role": "user", "content": "a title please"}], "temperature": 2.0, "stream": True}
    text = "".join(
        event.data["choices"][0]["delta"].get("content") or ""
        for event in stream(live, CHAT, {**ask, "think": False})
        if event.data != "[DONE]"
    )

    assert "A title" == text


def test_it_says_that_it_is_scripted(live: Live) -> None:
    assert "scripted" == get(live, "/v1/models").json()["data"][0]["id"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not empty"),
        ('{"write": "x"}', "list of answers"),
        ('[{"when": "x"}]', "needs a text `write`"),
        ('[{"write": "x", "wen": "x"}]', "needs a text `write`"),
        ('[{"write": "x", "when": "("}]', "no pattern"),
        ('[{"write": "x", "when": 3}]', "must be a pattern"),
        ('[{"write": "x", "turn": true}]', "whole number"),
    ],
)
def test_a_wrong_script_gives_one_clear_message(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lines.json"
    path.write_text(text)

    with pytest.raises(SettingError, match=message):
        read_script(path)


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"none\.json cannot be read"):
        read_script(tmp_path / "none.json")
