"""The terminal chat: what it sends, what it shows, and that nothing makes it fall over."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.chat.markers import USER
from engine.errors import SettingError
from engine.talk import Server, Talk, TalkError
from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.wire import message


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    def echo(prompt: str) -> str:
        turns = prompt.count(USER)
        return f"Hm.</think>turn {turns}: {prompt.rsplit(USER, 1)[1]}"

    with live_server(Script(echo)) as running:
        yield running


def typed(*lines: str | BaseException | type[BaseException]) -> Callable[[], str]:
    """A person who types these lines; an exception is a key with Ctrl."""
    left = iter([*lines, EOFError])

    def read() -> str:
        line = next(left)
        if isinstance(line, str):
            return line
        raise line

    return read


def screen(live: Live, *lines: str | BaseException | type[BaseException], **options: Any) -> str:
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
    assert 3 == text.count("Ctrl-C stops"), "at the start, on /help and after a wrong command"
    assert "turn 3" not in text


def test_a_path_is_no_command_and_may_be_sent_all_the_same(live: Live) -> None:
    text = screen(live, "/etc/hosts, what is it?", "//etc/hosts, what is it?")

    assert "/etc/hosts, what is it? is no command, and nothing is sent\n" in text
    assert "turn 1: /etc/hosts, what is it?" in text


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
    server = Server.at(f"http://127.0.0.1:{port}/v1")

    assert not Talk(server, shown.append).run(typed("Hello")), "the last text got no answer"
    assert f"the server at 127.0.0.1:{port} cannot be reached: Connection refused; `eng" in "".join(shown)
    assert "Errno" not in "".join(shown)
    with pytest.raises(TalkError, match="Connection refused"):
        server.check()


def test_the_end_says_whether_the_last_text_got_an_answer(live: Live) -> None:
    talk = Talk(Server.at(f"{live.base_url}/v1"), lambda _: None)
    talk.server.check()

    assert not talk.run(typed("Hello", "x" * 9000))
    assert talk.run(typed("x" * 9000, "Hello", "/help"))
    assert talk.run(typed())


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8000", "ftp://x", "http://", "http://[::1", "http://127.0.0.1:abc/v1"),
        *("http://127.0.0.1:99999/v1", "http://127.0.0.1:-1", "http://a b/v1", "http://u:p@127.0.0.1:8000"),
    ],
)
def test_a_wrong_address_says_what_one_looks_like(url: str) -> None:
    with pytest.raises(SettingError, match="http://127"):
        Server.at(url)


def test_a_name_that_is_no_host_is_one_line() -> None:
    assert "..:1 cannot be reached" in shown_by("http://..:1/v1")


@pytest.mark.parametrize(
    "sent",
    [
        '{"choices": 5}',
        '{"choices": ["x"]}',
        '{"choices": [{"delta": "x"}]}',
        '{"choices": [{"delta": {"content": 5}}]}',
        '{"usage": 5}',
        '{"timings": {"ttft_ms": null}}',
        '{"timings": {"decode_tok_s": "fast"}}',
    ],
)
def test_events_of_another_shape_are_one_line(sent: str) -> None:
    answer = f"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: {sent}\n\n".encode()
    with foreign_server(answer) as url:
        text = shown_by(url)

    assert "the server sent an event that is no chunk of a chat\n" in text


def test_nothing_that_is_written_commands_the_terminal() -> None:
    hostile = "a\x1b]52;c;cm0gLXJm\x07b\x9bc\rd"
    event = json.dumps({"choices": [{"delta": {"content": hostile, "reasoning_content": hostile}}]})
    error = json.dumps({"error": {"message": hostile}})
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    texts = []
    for sent in (event, error):
        with foreign_server(head + f"data: {sent}\n\n".encode()) as url:
            texts.append(shown_by(url))

    assert all("a\ufffd]52;c;cm0gLXJm\ufffdb\ufffdcd" in text for text in texts)
    assert set() == set("".join(texts)) & set("\x1b\x07\x9b\r")


def test_a_line_in_another_encoding_is_not_sent(live: Live) -> None:
    text = screen(live, UnicodeDecodeError("ascii", b"x", 0, 1, "no"), "Hi")

    assert "not in the encoding of the terminal" in text
    assert "turn 1: Hi" in text


@pytest.mark.parametrize("key", ["k\n1", "ключ", "a\x00"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(SettingError, match="no header can carry") as error:
        Server.at("http://127.0.0.1:8000/v1", key=key)

    assert key not in str(error.value)


@contextmanager
def foreign_server(answer: bytes) -> Iterator[str]:
    """The URL of a server that reads one request and sends these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                message(connection)
                connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        serving.join()


def shown_by(url: str) -> str:
    shown: list[str] = []
    Talk(Server.at(url), shown.append).run(typed("Hi"))
    return "".join(shown)
