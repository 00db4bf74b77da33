"""Pairs that go through files: brought back, found by another process, foreign, torn, abandoned."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.cache.shelf import Shelf
from engine.kernels.ref.rounding import EXACT
from engine.runner import Runner
from gates.equivalence.house import Asked, House
from gates.equivalence.seen import Compared, named
from gates.equivalence.sharing import ANSWER, both_fresh, next_turn
from gates.equivalence.workbench import Workbench, state

LENGTH = 260  # tokens of a prompt that is worth a file
GRID = 128  # anchors inside it
BUDGET = 2**28


def _shelf(folder: Path, runner: Runner) -> Shelf:
    return Shelf(folder, fingerprint=runner.fingerprint, budget=BUDGET)


def _house(folder: Path, runner: Runner, **limits: Any) -> House:
    """An engine that stores what it keeps in a folder."""
    return House(runner, shelf=_shelf(folder, runner), anchor_every=GRID, **limits)


def _written(bench: Workbench, runner: Runner, length: int = LENGTH) -> tuple[Path, Asked]:
    """A folder with one stored conversation, left by an engine that has ended."""
    folder = bench.new_folder()
    house = _house(folder, runner)
    asked = house.ask(bench.tokens(length), ANSWER)
    house.close()
    return folder, asked


def _file(folder: Path) -> Path:
    """The one file of a folder."""
    found = list(folder.glob("*.kv"))
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} stored files were left in place of one")
    return found[0]


def _found(bench: Workbench, folder: Path, runner: Runner, first: Asked) -> bool:
    """Whether a fresh engine takes up a stored conversation at its end; leaves the folder as it was."""
    copy = bench.new_folder()
    shutil.copy(_file(folder), copy)
    house = _house(copy, runner)
    second = house.ask(next_turn(bench, first), 1)
    house.close()
    return second.cached == LENGTH + ANSWER - 1


def _compared(runner: Runner, second: Asked, engaged: Mapping[str, bool]) -> Compared:
    """A turn against the same with an engine to itself."""
    alone = House(runner.beside(cache_bytes=2**26), anchor_every=1 << 20)
    left = alone.ask(second.request.prompt, second.request.max_tokens).seen
    return Compared(named("request", left), named("request", second.seen), engaged)


def evicted(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """The next turn of a conversation that had to go to disk, and a branch from an anchor inside it."""
    house = _house(bench.new_folder(), bench.runner(), max_records=1)
    first = house.ask(bench.tokens(case["at"]), ANSWER)
    house.ask(bench.tokens(20, 80), 1)
    gone = house.evicted
    second = house.ask(next_turn(bench, first), ANSWER)
    house.ask(bench.tokens(20, 81), 1)
    branch = house.ask([*first.request.prompt, *bench.tokens(60, 82)], ANSWER)
    house.close()
    engaged = {
        "it had to go": gone > 0 and house.evicted > gone,
        "it came back at its end": second.cached == case["at"] + ANSWER - 1,
        "and at an anchor": branch.cached == case["at"] - 1,
    }
    seen = named("request 1", second.seen) | named("request 2", branch.seen)
    return Compared(both_fresh(bench, second, branch), seen, engaged)


def other_process(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A next turn asked of an engine that has nothing but the files of another."""
    runner = bench.runner(case["kind"])
    folder, first = _written(bench, runner)
    house = _house(folder, bench.runner(case["kind"]))
    second = house.ask(next_turn(bench, first), ANSWER)
    house.close()
    engaged = {"it was found": second.cached == LENGTH + ANSWER - 1}
    return _compared(runner, second, engaged)


def other_layout(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A next turn beside a file of rows that lie or round otherwise."""
    kinds = {
        "packed to wide": (bench.runner("packed"), bench.runner("wide")),
        "wide to packed": (bench.runner("wide"), bench.runner("packed")),
        "other rounding": (bench.runner("wide", EXACT), bench.runner("wide")),
    }
    writer, reader = kinds[case["kind"]]
    folder, first = _written(bench, writer)
    found = _found(bench, folder, writer, first)
    house = _house(folder, reader)
    second = house.ask(next_turn(bench, first), ANSWER)
    house.close()
    return _compared(reader, second, {"who wrote it finds it": found})


def torn(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A next turn beside a damaged file of the very conversation."""
    folder, first = _written(bench, bench.runner())
    found = _found(bench, folder, bench.runner(), first)
    path = _file(folder)
    whole = bytearray(path.read_bytes())
    half, changed = len(whole) // 2, bytearray(whole)
    changed[3 * len(whole) // 4] ^= 0x10
    kinds = {"cut": whole[:half], "zeroed": whole[:half] + bytes(len(whole) - half), "changed": changed}
    path.write_bytes(kinds[case["kind"]])
    house = _house(folder, bench.runner())
    second = house.ask(next_turn(bench, first), ANSWER)
    house.close()
    return _compared(bench.runner(), second, {"whole it is found": found})


def killed(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A next turn beside what a process left that the system killed while it wrote the file."""
    del case
    folder, runner = bench.new_folder(), bench.runner()
    first = House(bench.runner()).ask(bench.tokens(LENGTH), ANSWER)
    tokens = [*first.request.prompt, *first.tokens[:-1]]
    cache = runner.new_cache()
    runner.step([(cache, tokens)])
    arrays = state(cache)
    np.savez(folder / "state.npz", tokens=np.array(tokens, np.int32), **arrays)  # type: ignore[arg-type] # its stub takes no names but its own
    half = str(sum(array.nbytes for array in arrays.values()) // 2)
    words = [sys.executable, "-m", "gates.equivalence.dying", str(folder), runner.fingerprint, half]
    died = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if died.returncode != -signal.SIGXFSZ:
        raise RuntimeError(f"the writer ended with {died.returncode}: {died.stderr[-500:]}")
    left = [path.name for path in folder.iterdir() if path.suffix != ".npz"]
    house = _house(folder, bench.runner())
    second = house.ask(next_turn(bench, first), ANSWER)
    house.close()
    return _compared(bench.runner(), second, {"it left something": bool(left)})
