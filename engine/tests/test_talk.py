"""The terminal chat: what it sends, what it shows, and that nothing makes it fall over."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.chat.markers import USER
from engine.errors import SettingError
from engine.talk import Server, Talk
from engine.tests.server.live import Live, Script, live_server


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    def echo(prompt: str) -> str:
        turns = prompt.count(USER)
        return f"Hm.</think>turn {turns}: {prompt.rsplit(USER, 1)[1]}"

    with live_server(Script(echo)) as running:
        yield running


def typed(*lines: str | type[BaseException]) -> Callable[[], str]:
    """A person who types these lines; an exception is a key with Ctrl."""
    left = iter([*lines, EOFError])

    def read() -> str:
        line = next(left)
        if isinstance(line, str):
            return line
        raise line

    return read


def screen(live: Live, *lines: str | type[BaseException], **options: Any) -> str:
    shown: list[str] = []
    talk = Talk(Server.at(f"{live.base_url}/v1"), shown.append, **options)
    talk.run(typed(*lines))
    return "".join(shown)


def test_answers_reasoning_and_rates_are_shown(live: Live) -> None:
    text = screen(live, "Hello", "And now?")

    assert "Hm.\nturn 1: Hello\n[" in text
    assert "turn 2: And now?" in text
    assert "tokens, first after" in text
    assert "\x1b" not in text


def test_reasoning_is_dim_where_colours_are_allowed(live: Live) -> None:
    assert "\x1b[2mHm.\n\x1b[0mturn 1: Hello" in screen(live, "Hello", colour=True)


def test_commands_change_what_is_sent(live: Live) -> None:
    text = screen(live, "a", "/new", "b", "/think off", "c", "/help", "/nothing", "/system S", "/quit", "d")

    assert "turn 1: b" in text
    assert "thinking is off" in text
    assert "Hm.turn 2: c" in text, "without thinking all of it is the answer"
    assert 3 == text.count("Ctrl-C stops")
    assert "turn 3" not in text


def test_an_interrupted_line_is_forgotten(live: Live) -> None:
    assert "turn 1: Hello" in screen(live, KeyboardInterrupt, "", "Hello")


def test_a_refusal_is_one_line_and_leaves_the_conversation(live: Live) -> None:
    text = screen(live, "x" * 9000, "Hello")

    assert "the prompt has 9" in text
    assert "turn 1: Hello" in text


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shown: list[str] = []
    Talk(Server.at(f"http://127.0.0.1:{port}/v1"), shown.append).run(typed("Hello"))

    assert f"127.0.0.1:{port} cannot be reached" in "".join(shown)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://"])
def test_a_wrong_address_says_what_one_looks_like(url: str) -> None:
    with pytest.raises(SettingError, match="http://127"):
        Server.at(url)
