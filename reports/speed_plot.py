"""The plot of docs/performance.md: decode over depth, a step over its rows, prefill over depth, as SVG.

The same record gives the same bytes.  matplotlib draws; nothing else of the reports needs it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from reports.speed import floor_gb

OURS, OTHER, FLOOR = "#0b62a4", "#b3541e", "#6b7280"
# The public CUDA engine for this model (May 2026), one H200, the same kind of file: depth, decode and prefill
# in tok/s.
PUBLIC_NAME: Final = "public CUDA engine (May 2026)"
PUBLIC: Final = ((2048, 33.5, 1342), (8192, 32.1, 1335), (32768, 29.5, 1212), (131072, 23.5, 857))
Record = Mapping[str, Any]


def draw(record: Record) -> str:
    """The drawing of one record."""
    with mpl.rc_context({"svg.hashsalt": "sparkgate", "svg.fonttype": "none", "font.size": 9.0}):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        decode, rows, prefill = figure.subplots(1, 3)
        whole = record["layers"] == 43
        _decode(decode, record, whole)
        _rows(rows, record, whole)
        _prefill(prefill, record, whole)
        shown = {label: line for line, label in zip(*decode.get_legend_handles_labels(), strict=True)}
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, frameon=False)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Description": describe(record)})
    return target.getvalue()


def describe(record: Record) -> str:
    """Which record a drawing shows."""
    return f"{record['card']}, {record['layers']} layers, {record['date']}, commit {record['commit']}"


def _decode(axes: Axes, record: Record, whole: bool) -> None:
    depths = [row["depth"] for row in record["decode"]]
    _line(axes, depths, [row["tok_s"] for row in record["decode"]], "this engine")
    if whole:
        _line(
            axes,
            [d for d, _, _ in PUBLIC],
            [rate for _, rate, _ in PUBLIC],
            PUBLIC_NAME,
            OTHER,
        )
        floor = 1e3 * record["bandwidth"]["copy_tb_s"] / floor_gb(1)
        axes.axhline(floor, color=FLOOR, linestyle="--", label="weights at the copy bandwidth")
    axes.set_yscale("log")
    _finish(axes, "Decode, one stream", "tokens before it", "tok/s", depths)


def _rows(axes: Axes, record: Record, whole: bool) -> None:
    steps = sorted({row["rows"]: row["ms"] for row in [record["decode"][0], *record["rows"]]}.items())
    counts = [rows for rows, _ in steps]
    _line(axes, counts, [ms for _, ms in steps], "this engine")
    if whole:
        floor = [floor_gb(rows) / record["bandwidth"]["copy_tb_s"] for rows in counts]
        _line(axes, counts, floor, "weights at the copy bandwidth", FLOOR, "--", marker="")
    axes.set_ylim(bottom=0)
    axes.set_title("A step over its rows, at 2,048 tokens")
    axes.set_xlabel("rows")
    axes.set_ylabel("ms")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.grid(alpha=0.3)


def _prefill(axes: Axes, record: Record, whole: bool) -> None:
    if not record["prefill"]:
        axes.set_axis_off()
        return
    longest = max(record["prefill"], key=lambda row: int(row["tokens"]))
    chunk = longest["chunk"]
    ends = [float(longest["tokens"])]
    if "chunks_ms" in longest:
        ends = [chunk * (number + 1) for number in range(len(longest["chunks_ms"]))]
        rates = [1e3 * chunk / ms for ms in longest["chunks_ms"]]
        _line(axes, ends, rates, "this engine", marker="")
    prompts = sorted((row["tokens"], row["tok_s"]) for row in record["prefill"])
    axes.plot(*zip(*prompts, strict=True), "o", color=OURS, markersize=4)
    if whole:
        _line(
            axes,
            [d for d, _, _ in PUBLIC],
            [rate for _, _, rate in PUBLIC],
            PUBLIC_NAME,
            OTHER,
        )
    axes.set_yscale("log")
    _finish(
        axes,
        "Prefill: chunks, and prompts as dots",
        "tokens so far",
        "tok/s",
        [row[0] for row in prompts],
    )


def _line(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    label: str,
    color: str = OURS,
    style: str = "-",
    marker: str = "o",
) -> None:
    axes.plot(x, y, marker=marker, markersize=4, color=color, linestyle=style, label=label)


def _finish(axes: Axes, title: str, x: str, y: str, depths: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([2048 * 4**power for power in range(5)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1024:.0f}K"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(1500, 1.4 * max(131072, *depths))
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
