"""The command `bench`: which measurement its options ask for, and where the report goes.

Imports torch and the device path only in the measurement that needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.config import Settings, load, model_path
from engine.errors import EngineError, SettingError
from engine.options import MAX_TOKENS, numbers, settings_of


def bench(options: argparse.Namespace) -> int:
    """Measure what the options ask for, and show it; 0, or a SettingError or EngineError."""
    if options.against:
        return _against(options)
    if options.write and not options.synthetic:
        raise SettingError("--write needs --synthetic, which names the shape to write")
    if options.synthetic or options.load:
        return _card(options)
    settings = settings_of(options)
    path = model_path(settings)
    _check_out(options.out)
    if options.memory:
        return _memory(path, settings, options)
    depths = numbers(options.depths or "512,8192", "--depths", MAX_TOKENS)
    from engine.bench.service import describe, measure

    report = measure(path, settings, depths=depths, decode=options.decode)
    _show(report, options, describe)
    return 0


def _memory(path: Path, settings: Settings, options: argparse.Namespace) -> int:
    from engine.bench.memory import describe, measure

    depths = numbers(options.depths or "32768,131072", "--depths", MAX_TOKENS)
    _show(measure(path, settings, depths=depths, decode=options.decode, say=_say), options, describe)
    return 0


def _card(options: argparse.Namespace) -> int:
    _check_out(options.out)
    if options.write:
        return _write_synthetic(options)
    report = _time_load(options) if options.load else _measure_card(options)
    _show(report, options, None if options.out else lambda found: json.dumps(found, indent=1))
    return 0


def _against(options: argparse.Namespace) -> int:
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
        depths=numbers(options.depths or "2048,32768,131072", "--depths", MAX_TOKENS),
        rows=numbers(options.rows, "--rows"),
        prefill=numbers(options.prefill, "--prefill", MAX_TOKENS),
        steps=options.decode,
    )
    return measure(plan, _say, lambda report: _write(report, options))


def _time_load(options: argparse.Namespace) -> dict[str, Any]:
    path = model_path(load(command_line={"model": str(options.load)}, environment={}))
    context = settings_of(options).engine.context
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
