"""The words of the command line: a wrong one is named in one line, with the nearest and where help is."""

from __future__ import annotations

import pytest

from engine.cli import COMMANDS
from engine.options import read


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "serve --prot 1",
            "engine serve: there is no option --prot, the nearest is --port; see engine serve",
        ),
        ("serve --prot=1", "there is no option --prot, the nearest is --port"),
        ("run --promt hi", "engine run: there is no option --promt, the nearest is --prompt;"),
        ("bench --depth 8", "there is no option --depth, the nearest is --depths"),
        ("chat --qqq", "engine chat: there is no option --qqq; see engine chat --help"),
        ("chat -q", "there is no option -q;"),
        ("inspect a b", "engine inspect: 'b' is one word too many;"),
        ("sevre", "engine: there is no command 'sevre', the nearest is serve; commands are serve, chat, run"),
        ("run", "engine run: the following arguments are required: -p/--prompt; see engine run --help"),
        ("load --requests 0", "argument --requests: '0' is no whole number from 1 on;"),
        ("load --rounds x", "argument --rounds: 'x' is no whole number from 1 on;"),
        ("bench --turns 0", "argument --turns: '0' is no whole"),
        ("chat -n 0", "argument -n/--max-tokens: '0' is no whole"),
    ],
)
def test_a_wrong_word_is_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(words.split(), COMMANDS)
    printed = capsys.readouterr()

    assert 2 == ended.value.code
    assert message in printed.err
    assert "" == printed.out
    assert 1 == len(printed.err.splitlines())


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["serve", "--port", "1"], "server.port", "1"),
        (["serve", "--por=1"], "server.port", "1"),
        (["run", "-p", "--- what is this?"], "prompt", "--- what is this?"),
        (["inspect", "--", "--model.gguf"], "model", "--model.gguf"),
        (["bench", "--decode", "9"], "decode", 9),
    ],
)
def test_right_words_are_taken(words: list[str], name: str, value: object) -> None:
    assert value == vars(read(words, COMMANDS))[name]
