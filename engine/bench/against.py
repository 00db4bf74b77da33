"""This checkout against another one: the same bench of both in turns A B B A, each in a process of its own.

A machine that warms up or gets busy slows both alike, so what is compared is each pair of neighbours.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from engine.errors import EngineError, SettingError

ROOT: Final = Path(__file__).parents[2]
# Where a report has figures: the list, its fields that name a row, the figure, and whether more is faster.
_LISTS: Final = (
    ("depths", ("depth",), "prefill_tok_s", True),
    ("depths", ("depth",), "decode_tok_s", True),
    ("decode", ("depth", "rows"), "ms", False),
    ("rows", ("depth", "rows"), "ms", False),
    ("prefill", ("tokens",), "tok_s", True),
    ("loads", (), "seconds", False),
)

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both builds: values in the order of the runs, and how much faster this one is."""

    name: str
    other: tuple[float, ...]
    ours: tuple[float, ...]
    faster: tuple[float, ...]  # a pair of neighbours each: 1.1 is a tenth faster here

    def row(self) -> dict[str, Any]:
        """Medians of both and of the pairs, with the least and the largest pair."""
        return {
            "figure": self.name,
            "other": statistics.median(self.other),
            "ours": statistics.median(self.ours),
            "faster": round(statistics.median(self.faster), 4),
            "low": round(min(self.faster), 4),
            "high": round(max(self.faster), 4),
        }


def compare(
    other: Path, words: Sequence[str], turns: int, bench: Callable[[Path, Sequence[str]], Report]
) -> dict[str, Any]:
    """Run `bench` of `other`, of this checkout twice, of `other` again, so many times; compare all figures.

    `words` are those of the bench.  SettingError for a folder that is no checkout or no turns.
    """
    if not (other / "engine" / "__main__.py").is_file():
        raise SettingError(
            f"--against is {str(other)!r}; allowed is a folder with another checkout of this project"
        )
    if turns < 1:
        raise SettingError(f"--turns is {turns}; allowed is 1 and more")
    pairs = []
    for _ in range(turns):
        first, ours = bench(other, words), bench(ROOT, words)
        again, last = bench(ROOT, words), bench(other, words)
        pairs += [(first, ours), (last, again)]
    both = [tuple(figures(report) for report in pair) for pair in pairs]
    shared = [name for name in both[0][1] if all(name in side for pair in both for side in pair)]
    alone = {name for side in chain(*both) for name in side} - set(shared)
    return {
        "other": str(other),
        "order": "ABBA" * turns,
        "figures": [_figure(name, both).row() for name in shared],
        "in_one_only": sorted(alone),
    }


def run_bench(checkout: Path, words: Sequence[str]) -> Report:
    """The report of a checkout's own bench, in a process of its own; EngineError if that fails."""
    command = [sys.executable, "-P", "-m", "engine", "bench", *words, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise EngineError(f"the bench of {checkout} ended with code {done.returncode}; its message is above")
    found: Report = json.loads(done.stdout)
    return found


def figures(report: Report) -> dict[str, tuple[float, bool]]:
    """Every figure of a report by name: its value, and whether more is faster."""
    return {name: (value, more) for name, value, more in _figures(report) if value > 0}


def describe(comparison: Mapping[str, Any]) -> str:
    """The comparison as a table."""
    rows = comparison["figures"]
    wide = max([len(row["figure"]) for row in rows], default=6)
    lines = [f"A = {comparison['other']}, B = this checkout, order {comparison['order']}"]
    lines.append(f"{'figure':{wide}}  {'A':>10}  {'B':>10}  B faster by (least to largest pair)")
    for row in rows:
        lines.append(
            f"{row['figure']:{wide}}  {row['other']:10.6g}  {row['ours']:10.6g}  "
            f"{row['faster']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        )
    if comparison["in_one_only"]:
        lines.append(f"in one of them only: {', '.join(comparison['in_one_only'])}")
    return "\n".join(lines)


def _figures(report: Report) -> Iterator[tuple[str, float, bool]]:
    for part, keys, figure, more in _LISTS:
        for number, row in enumerate(report.get(part, ())):
            place = ", ".join(f"{key} {row[key]}" for key in keys) or f"number {number + 1}"
            yield f"{part}: {place}: {figure}", float(row[figure]), more
    for rows, products in report.get("products", {}).items():
        for row in products:
            yield f"products: {row['product']}, {rows} rows: us", float(row["us"]), False


def _figure(name: str, both: Sequence[tuple[Mapping[str, tuple[float, bool]], ...]]) -> Figure:
    other, ours = (tuple(pair[side][name][0] for pair in both) for side in (0, 1))
    more = both[0][1][name][1]
    pairs = zip(other, ours, strict=True)
    return Figure(name, other, ours, tuple(here / there if more else there / here for there, here in pairs))
