"""The options of the command line, and settings and numbers out of them.

Knows the words and what they mean; what a command does is in `engine.cli` and `engine.bench.command`.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from engine.config import Settings, load
from engine.errors import SettingError

Command = Callable[[argparse.Namespace], int]
MAX_AT_ONCE = 1000
MAX_TOKENS = 2**20


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and how to see the rest, without the usage of everything."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def check_names(self, words: Sequence[str]) -> None:
        """End at the first word that looks like a long option and is none, before anything else is missed."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for word in words:
            if word == "--":
                return
            name = word.partition("=")[0]
            wanted = name.startswith("--") and " " not in word
            if wanted and not (
                any(k.startswith(name) for k in known) if self.allow_abbrev else name in known
            ):
                self.error(f"there is no option {name}{_nearest(name, known)}")


def read(words: Sequence[str], commands: Mapping[str, Command]) -> argparse.Namespace:
    """The options of one command line; ends with 2 and one line for a wrong one.

    `commands` are what the first word runs, by name.
    """
    whole = _Parser(prog="engine", description="A compact engine and server for DeepSeek-V4-Flash.")
    found = _add_commands(whole, commands)
    name = words[0] if words else ""
    if name in found:
        found[name].check_names(words[1:])
    elif not name.startswith("-"):
        hint = _nearest(name, found)
        whole.error(f"there is no command {name!r}{hint}; commands are {', '.join(found)}")
    options, rest = whole.parse_known_args(words)
    if rest:
        short = rest[0].startswith("-")
        found[name].error(f"there is no option {rest[0]}" if short else f"{rest[0]!r} is one word too many")
    return options


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", the nearest is {close[0]}" if close else ""


def _add_commands(whole: _Parser, commands: Mapping[str, Command]) -> dict[str, _Parser]:
    words = whole.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(words.add_parser("serve", help="answer OpenAI and Anthropic requests; the default command"))
    _add_chat(words.add_parser("chat", help="talk to a server on the terminal"))
    _add_run(words.add_parser("run", help="answer one prompt on the terminal"))
    _add_inspect(words.add_parser("inspect", help="show a model's shape and what fits in memory"))
    bench = "measure decode and prefill rates on this machine"
    _add_bench(words.add_parser("bench", help=bench, allow_abbrev=False))
    _add_load(words.add_parser("load", help="let many clients ask a server, and check every answer"))
    for name, command in commands.items():
        words.choices[name].set_defaults(command=command)
    return dict(words.choices)


def _count(text: str) -> int:
    """A whole number from 1 on."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="model file; default: the embedded model")
    parser.add_argument("--model", dest="model_option", metavar="MODEL", help="the same as an option")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--settings", type=Path, metavar="FILE", help="TOML file with tables engine, server")
    parser.add_argument("--threads", dest="engine.threads", metavar="N", help="CPU threads; default: all")
    parser.add_argument("--context", dest="engine.context", metavar="TOKENS", help="default: the model's own")


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_engine(parser)
    parser.add_argument("--host", dest="server.host", help="default: 127.0.0.1")
    parser.add_argument("--port", dest="server.port", help="default: 8000; 0 takes a free one")
    parser.add_argument("--model-id", dest="server.model_id", metavar="ID", help="name shown to clients")
    parser.add_argument("--max-sequences", dest="engine.max_sequences", metavar="N", help="default: 8")
    parser.add_argument(
        "--cache-mib",
        dest="engine.cache_mib",
        metavar="MIB",
        help="cached rows of all conversations; default: 1024",
    )
    parser.add_argument(
        "--script",
        type=Path,
        metavar="FILE",
        help="for tests of clients: give recorded answers (docs/serving.md)",
    )


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1", help="default: %(default)s")
    parser.add_argument("--model", default="", help="default: whatever is loaded")
    parser.add_argument("-s", "--system", default="", help="system text")
    parser.add_argument("-t", "--temperature", type=float, help="default: the server's")
    parser.add_argument("-n", "--max-tokens", type=_count, help="default: as many as fit")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_engine(parser)
    parser.add_argument("-p", "--prompt", required=True, help="the user's message; - reads it from stdin")
    parser.add_argument("-s", "--system", default="", help="system text")
    parser.add_argument("-n", "--max-tokens", type=int, default=512, help="default: 512")
    parser.add_argument(
        "-t", "--temperature", type=float, default=0.0, help="default: 0, the likeliest token"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--think", action="store_true", help="let the model reason first")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--spec", metavar="NAME", help="a published shape instead of a file: v4-flash, v4-pro"
    )
    parser.add_argument("--memory", metavar="SIZE", help="what fits in this much memory, for example 119GiB")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_bench(parser: argparse.ArgumentParser) -> None:
    _add_engine(parser)
    parser.add_argument("--depths", help="tokens before decoding; default: 512,8192; on a card more")
    parser.add_argument("--decode", type=int, default=32, metavar="N", help="tokens to decode; default: 32")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="the same bench of another checkout and this, in turns",
    )
    parser.add_argument("--turns", type=_count, default=1, metavar="N", help="A B B A so often; default: 1")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="packed rows against wide, warm against cold, out of memory and back; depths: 32768,131072",
    )
    card = parser.add_argument_group("on an accelerator, a synthetic model of full size")
    source = card.add_mutually_exclusive_group()
    source.add_argument("--synthetic", metavar="NAME", help="a published shape with random weights: v4-flash")
    source.add_argument(
        "--load", type=Path, metavar="FILE", help="time bringing a model file onto the card, and nothing else"
    )
    card.add_argument("--layers", type=int, metavar="N", help="only the first N layers; default: all")
    card.add_argument("--rows", default="2,5,8,16", help="rows of a step at 2,048 tokens; default: 2,5,8,16")
    card.add_argument("--prefill", default="8192,131072", help="prompts in tokens; default: 8192,131072")
    card.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write the synthetic model as a model file, and measure nothing",
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--base-url", metavar="URL", help="a server that runs; default: one is started")
    parser.add_argument("--clients", default="16,64", help="at once, a round each; default: 16,64")
    parser.add_argument("--requests", type=_count, default=96, metavar="N", help="a round; default: 96")
    parser.add_argument("--rounds", type=_count, default=2, metavar="N", help="with each number; default: 2")
    parser.add_argument("--seed", type=int, default=1, help="of the requests; default: 1")
    parser.add_argument(
        "--overhead", default="", metavar="ROWS", help="hold the server against the bare model, e.g. 1,16"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def settings_of(options: argparse.Namespace) -> Settings:
    """Settings of file, environment and command line; SettingError for a wrong one."""
    named = {key: value for key, value in vars(options).items() if "." in key}
    named["model"] = options.model_option or options.model
    file = getattr(options, "settings", None)
    return load(command_line=named, environment=os.environ, file=file)


def numbers(text: str, option: str, most: int = MAX_AT_ONCE) -> tuple[int, ...]:
    """Whole numbers from 1 to `most`, separated by commas; none of an empty text."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and 0 < int(part) <= most for part in parts):
        raise SettingError(f"{option} is {text!r}; allowed are numbers from 1 to {most}, as in 1,16")
    return tuple(map(int, parts))
