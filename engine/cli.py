"""The command line: serve, chat, run, inspect, bench, load; without a command it serves.

Owns what a command does and how it ends.  Imports torch and the server only in the command that needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from engine.config import let_threads_sleep, load, model_path
from engine.errors import EngineError, SettingError
from engine.options import Command, numbers, read, settings_of

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 on success, 1 for an error, 2 for wrong usage or settings, 130 when interrupted."""
    _prepare_standard_files()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "serve")
    options = read(words, COMMANDS)
    options.words = words[1:]
    let_threads_sleep(os.environ)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s level=%(levelname)s %(name)s %(message)s")
    command: Command = options.command
    try:
        return command(options)
    except SettingError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except EngineError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, for example head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _prepare_standard_files() -> None:
    """Open what the launcher closed: a model file or a socket would take its place, and get our messages."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character that the model writes


def _serve(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    path = model_path(settings)
    from engine.server.serve import exit_code, serve

    logging.getLogger("engine").setLevel(settings.server.log_level.upper())
    began = time.monotonic()

    def show(line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk, or a reader that left, is no reason to stop serving
            print(f"[{time.monotonic() - began:6.1f} s] {line}", file=sys.stderr, flush=True)

    return exit_code(serve(path, settings, announce=show, report=show, script=options.script))


def _chat(options: argparse.Namespace) -> int:
    from engine.talk import Server, Talk

    keys = load(command_line={}, environment=os.environ).server.keys
    wanted = {"model": options.model, "temperature": options.temperature, "max_tokens": options.max_tokens}
    talk = Talk(
        Server.at(options.base_url, key=keys[0] if keys else ""),
        show=lambda text: print(text, end="", flush=True),
        options={name: value for name, value in wanted.items() if value not in (None, "")},
        system=options.system,
        colour=sys.stdout.isatty(),
    )
    with contextlib.suppress(ImportError):
        readline: Any = importlib.import_module("readline")  # makes `input` a line editor
        readline.parse_and_bind("set enable-bracketed-paste on")  # pasted lines are one message
    talk.server.check()
    return 0 if talk.run(lambda: input("> ")) else 1


def _run(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    path = model_path(settings)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    from engine.bench.service import Question, ask

    question = Question(
        prompt=prompt,
        system=options.system,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        seed=options.seed,
        thinking=options.think,
    )
    closing = ask(path, settings, question, show=lambda text: print(text, end="", flush=True))
    print(f"\n{closing}", file=sys.stderr)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from engine.inspect import describe, inspect_file, parse_size, published

    memory = parse_size(options.memory) if options.memory else None
    if options.spec:
        report = published(options.spec, memory=memory)
    else:
        report = inspect_file(model_path(settings_of(options)), memory=memory)
    print(json.dumps(report, indent=1) if options.json else describe(report))
    return 0


def _load(options: argparse.Namespace) -> int:
    from engine.load.report import costs, table
    from engine.load.run import Options, run

    wanted = Options(
        model=model_path(settings_of(options)),
        base_url=options.base_url,
        clients=numbers(options.clients, "--clients"),
        requests=options.requests,
        rounds=options.rounds,
        seed=options.seed,
        overhead_rows=numbers(options.overhead, "--overhead"),
    )
    found = run(wanted, lambda line: print(line, file=sys.stderr, flush=True))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join([table(found["rounds"]), *costs(found["overhead"]), *found["wrong"]]))
    return 1 if found["wrong"] else 0


def _bench(options: argparse.Namespace) -> int:
    from engine.bench.command import bench

    return bench(options)


COMMANDS: Mapping[str, Command] = {
    "serve": _serve,
    "chat": _chat,
    "run": _run,
    "inspect": _inspect,
    "bench": _bench,
    "load": _load,
}
