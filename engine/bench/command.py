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
    depths = _depths(options, "512,8192")
    from engine.bench.service import describe, measure

    report = measure(path, settings, depths=depths, decode=options.decode)
    _show(report, options, describe)
    return 0


def _memory(path: Path, settings: Settings, options: argparse.Namespace) -> int:
    from engine.bench.memory import describe, measure

    depths = _depths(options, "32768,131072")
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


def _depths(options: argparse.Namespace, usual: str) -> tuple[int, ...]:
    found = numbers(options.depths or usual, "--depths", MAX_TOKENS)
    if not found:
        raise SettingError(f"--depths is {options.depths!r}; give at least one, as in {usual}")
    return found


def _check_out(path: Path | None) -> None:
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise SettingError(f"--out is {str(path)!r}; allowed is a file in a folder that exists")


def _show(
    report: dict[str, Any], options: argparse.Namespace, describe: Callable[[dict[str, Any]], str] | None
) -> None:
    """Write the report where it was asked for, and print it as JSON or in words.

    EngineError where it cannot be written; then it is printed as JSON, for it was long in the making.
    """
    try:
        _write(report, options)
    except OSError as error:
        print(json.dumps(report, indent=1))
        raise EngineError(f"{_unwritten(options, error)}; the report is printed instead") from None
    if options.json:
        print(json.dumps(report, indent=1))
    elif describe:
        print(describe(report))


def _write(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the report whole where one is asked for: until it is, the file of before stays."""
    if not options.out:
        return
    path, text = options.out.resolve(), json.dumps(report, indent=1) + "\n"
    if path.exists() and not path.is_file():  # a pipe or a device keeps its place
        path.write_text(text)
        return
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _unwritten(options: argparse.Namespace, error: OSError) -> str:
    return f"--out {options.out} cannot be written: {error.strerror}"


def _measure_card(options: argparse.Namespace) -> dict[str, Any]:
    with _device_path():
        from engine.device.bench import Plan, measure

    plan = Plan(
        model=options.synthetic,
        layers=options.layers,
        depths=_depths(options, "2048,32768,131072"),
        rows=numbers(options.rows, "--rows"),
        prefill=numbers(options.prefill, "--prefill", MAX_TOKENS),
        steps=options.decode,
    )

    def keep(report: dict[str, Any]) -> None:
        try:
            _write(report, options)
        except OSError as error:  # the parts to come may be written yet, and all of it is printed at last
            _say(f"{_unwritten(options, error)}; measuring goes on")

    return measure(plan, _say, keep)


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
