"""The command line: serve, chat, run, inspect, bench, load; without a command it serves.

Owns options and what is printed.  Imports torch and the server only in the command that needs them.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.config import Settings, let_threads_sleep, load, model_path
from engine.errors import EngineError, SettingError

INTERRUPTED = 130
MAX_AT_ONCE = 1000
MAX_TOKENS = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 on success, 1 for an error, 2 for wrong usage or settings, 130 when interrupted."""
    _prepare_standard_files()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "serve")
    options = _parser().parse_args(words)
    options.words = words[1:]
    let_threads_sleep(os.environ)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s level=%(levelname)s %(name)s %(message)s")
    command: Callable[[argparse.Namespace], int] = options.command
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="engine", description="A compact engine and server for DeepSeek-V4-Flash."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="answer OpenAI and Anthropic requests; the default command"))
    _add_chat(commands.add_parser("chat", help="talk to a server on the terminal"))
    _add_run(commands.add_parser("run", help="answer one prompt on the terminal"))
    _add_inspect(commands.add_parser("inspect", help="show a model's shape and what fits in memory"))
    bench = "measure decode and prefill rates on this machine"
    _add_bench(commands.add_parser("bench", help=bench, allow_abbrev=False))
    _add_load(commands.add_parser("load", help="let many clients ask a server, and check every answer"))
    return parser


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
    parser.set_defaults(command=_serve)


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1", help="default: %(default)s")
    parser.add_argument("--model", default="", help="default: whatever is loaded")
    parser.add_argument("-s", "--system", default="", help="system text")
    parser.add_argument("-t", "--temperature", type=float, help="default: the server's")
    parser.add_argument("-n", "--max-tokens", type=int, help="default: as many as fit")
    parser.set_defaults(command=_chat)


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
    parser.set_defaults(command=_run)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--spec", metavar="NAME", help="a published shape instead of a file: v4-flash, v4-pro"
    )
    parser.add_argument("--memory", metavar="SIZE", help="what fits in this much memory, for example 119GiB")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_inspect)


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
    parser.add_argument("--turns", type=int, default=1, metavar="N", help="A B B A so often; default: 1")
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
    parser.set_defaults(command=_bench)


def _add_load(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--base-url", metavar="URL", help="a server that runs; default: one is started")
    parser.add_argument("--clients", default="16,64", help="at once, a round each; default: 16,64")
    parser.add_argument("--requests", type=int, default=96, metavar="N", help="a round; default: 96")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="with each number; default: 2")
    parser.add_argument("--seed", type=int, default=1, help="of the requests; default: 1")
    parser.add_argument(
        "--overhead", default="", metavar="ROWS", help="hold the server against the bare model, e.g. 1,16"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_load)


def _settings(options: argparse.Namespace) -> Settings:
    named = {key: value for key, value in vars(options).items() if "." in key}
    named["model"] = options.model_option or options.model
    file = getattr(options, "settings", None)
    return load(command_line=named, environment=os.environ, file=file)


def _serve(options: argparse.Namespace) -> int:
    settings = _settings(options)
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
    talk.run(lambda: input("> "))
    return 0


def _run(options: argparse.Namespace) -> int:
    settings = _settings(options)
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
        report = inspect_file(model_path(_settings(options)), memory=memory)
    print(json.dumps(report, indent=1) if options.json else describe(report))
    return 0


def _bench(options: argparse.Namespace) -> int:
    if options.against:
        return _bench_against(options)
    if options.write and not options.synthetic:
        raise SettingError("--write needs --synthetic, which names the shape to write")
    if options.synthetic or options.load:
        return _bench_card(options)
    settings = _settings(options)
    path = model_path(settings)
    _check_out(options.out)
    if options.memory:
        return _bench_memory(path, settings, options)
    depths = _numbers(options.depths or "512,8192", "--depths", MAX_TOKENS)
    from engine.bench.service import describe, measure

    report = measure(path, settings, depths=depths, decode=options.decode)
    _show(report, options, describe)
    return 0


def _bench_memory(path: Path, settings: Settings, options: argparse.Namespace) -> int:
    from engine.bench.memory import describe, measure

    depths = _numbers(options.depths or "32768,131072", "--depths", MAX_TOKENS)
    _show(measure(path, settings, depths=depths, decode=options.decode, say=_say), options, describe)
    return 0


def _bench_card(options: argparse.Namespace) -> int:
    _check_out(options.out)
    if options.write:
        return _write_synthetic(options)
    report = _time_load(options) if options.load else _measure_card(options)
    _show(report, options, None if options.out else lambda found: json.dumps(found, indent=1))
    return 0


def _bench_against(options: argparse.Namespace) -> int:
    from engine.bench.against import compare, describe, run_bench

    _check_out(options.out)
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # what is not for the bench itself
    own.add_argument("--json", action="store_true")
    for name in ("--against", "--turns", "--out"):
        own.add_argument(name)
    _, words = own.parse_known_args(options.words)
    report = compare(options.against.resolve(), words, options.turns, run_bench)
    _show(report, options, describe)
    return 0


def _check_out(path: Path | None) -> None:
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise SettingError(f"--out is {str(path)!r}; allowed is a file in a folder that exists")


def _show(
    report: dict[str, Any], options: argparse.Namespace, describe: Callable[[dict[str, Any]], str] | None
) -> None:
    """Write the report where it was asked for, and print it as JSON or in words."""
    _write(report, options)
    if options.json:
        print(json.dumps(report, indent=1))
    elif describe:
        print(describe(report))


def _write(report: dict[str, Any], options: argparse.Namespace) -> None:
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _measure_card(options: argparse.Namespace) -> dict[str, Any]:
    with _device_path():
        from engine.device.bench import Plan, measure

    plan = Plan(
        model=options.synthetic,
        layers=options.layers,
        depths=_numbers(options.depths or "2048,32768,131072", "--depths", MAX_TOKENS),
        rows=_numbers(options.rows, "--rows"),
        prefill=_numbers(options.prefill, "--prefill", MAX_TOKENS),
        steps=options.decode,
    )
    return measure(plan, _say, lambda report: _write(report, options))


def _time_load(options: argparse.Namespace) -> dict[str, Any]:
    path = model_path(load(command_line={"model": str(options.load)}, environment={}))
    context = _settings(options).engine.context
    with _device_path():
        from engine.device.load import accelerator, time_load

    return time_load(path, accelerator(), times=2, context=context, say=_say)


def _write_synthetic(options: argparse.Namespace) -> int:
    with _device_path():
        from engine.device.synthetic import published, write_model

    write_model(options.write, published(options.synthetic, options.layers), sys.stderr)
    return 0


@contextlib.contextmanager
def _device_path() -> Iterator[None]:
    """Imports of the device path, with one clear message for what this Python lacks."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise EngineError(
            f"the device path needs the package {error.name!r}, which is not installed; "
            "bring it into this Python, which keeps its torch: pip install -e '.[device]'"
        ) from None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _load(options: argparse.Namespace) -> int:
    from engine.load.report import costs, table
    from engine.load.run import Options, run

    wanted = Options(
        model=model_path(_settings(options)),
        base_url=options.base_url,
        clients=_numbers(options.clients, "--clients"),
        requests=options.requests,
        rounds=options.rounds,
        seed=options.seed,
        overhead_rows=_numbers(options.overhead, "--overhead"),
    )
    found = run(wanted, _say)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join([table(found["rounds"]), *costs(found["overhead"]), *found["wrong"]]))
    return 1 if found["wrong"] else 0


def _numbers(text: str, option: str, most: int = MAX_AT_ONCE) -> tuple[int, ...]:
    """Whole numbers from 1 to `most`, separated by commas; none of an empty text."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and 0 < int(part) <= most for part in parts):
        raise SettingError(f"{option} is {text!r}; allowed are numbers from 1 to {most}, as in 1,16")
    return tuple(map(int, parts))
