"""Writes the measured part of docs/performance.md, and its plot, from a report of `engine bench --synthetic`.

`python reports/speed.py REPORT.json` keeps the report as the record in reports/bench/, draws it, and replaces
what stands between the two marks of the document.  matplotlib is needed for the plot alone.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from reports import speed_goals  # noqa: E402 -- after the path, so that the file itself can be run

DOCUMENT: Final = ROOT / "docs" / "performance.md"
PLOT: Final = ROOT / "docs" / "performance.svg"
RECORDS: Final = ROOT / "reports" / "bench"
OPEN: Final = "<!-- measured: written by `python reports/speed.py REPORT.json` -->"
CLOSE: Final = "<!-- end of measured -->"

# What wording or drawing a report raises where a part of it is not what the bench writes.
BROKEN: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, StopIteration)

ALL_LAYERS: Final = 43
# Bytes that a step of all layers reads: once whatever its rows are, and for each distinct routed expert.
DENSE_GB: Final = 7.73
EXPERT_GB: Final = 0.3043
EXPERTS, USED = 256, 6
GB10_GB_S: Final = 227  # what others measured as that machine's read bandwidth
KEPT: Final = 0.9  # share of the read bandwidth that long reads come to

# What a record is worded and drawn from; all other parts may be missing.
PARTS: Final = ("card", "torch", "triton", "layers", "bandwidth", "decode", "products", "rows", "prefill")

Record = Mapping[str, Any]


def section(record: Record, name: str) -> str:
    """What stands between the marks, for a record of that file name."""
    parts = [origin(record, name), speed_goals.table(record), products(record), costs(record)]
    parts += [sampling(record), loads(record), breakdown(record), gb10(record)]
    return "\n\n".join(part for part in parts if part)


def origin(record: Record, name: str) -> str:
    """Where the figures are from, and the plot."""
    rates = record["bandwidth"]
    return (
        f"One {record['card'].removeprefix('NVIDIA ')} (copy {rates['copy_tb_s']:.2f} TB/s, "
        f"read {rates['read_tb_s']:.2f} TB/s), torch {record['torch'].partition('+')[0]}, "
        f"Triton {record['triton']}, {record['date']}, commit {record['commit']}, {record['layers']} layers, "
        f"all of one run; the record is [reports/bench/{name}](../reports/bench/{name}).\n\n"
        "![Decode over depth, a step over its rows, prefill over depth](performance.svg)"
    )


def products(record: Record) -> str:
    """The packed products of one row and of sixteen."""
    copy = record["bandwidth"]["copy_tb_s"]
    lines = [
        "Each packed product beside a kernel that only reads the same bytes, over all layers.\n",
        "| product | rows | MB a launch | µs | reading, µs | reading ÷ ours | its rate ÷ copy |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows, table in record["products"].items():
        lines += [
            f"| {row['product']} | {rows} | {row['mb']:.1f} | {row['us']:.1f} | {row['read_us']:.1f} | "
            f"{row['share_of_read']:.2f} | {row['tb_s'] / copy:.2f} |"
            for row in table
        ]
    return "\n".join(lines)


def costs(record: Record) -> str:
    """The table of verify costs, where the record has one."""
    if "costs" not in record:
        return ""
    found = record["costs"]
    unit = found["unit"]
    lines = [
        "What a step of several rows costs, in plain steps at the same depth: the median of "
        f"{found['rounds']} rounds in turns, and the upper end of its 95 % interval.",
        f"The record has it under `costs` in whole units of 1/{unit:,}, for a controller of speculation.",
        "A plain step between others takes longer than one after its like: these are below the figure "
        "above.\n",
        f"| depth | plain step | {' | '.join(f'{rows} rows' for rows in found['rows'][1:])} |",
        "|---" * (1 + len(found["rows"])) + "|",
    ]
    for row in found["depths"]:
        pairs = list(zip(row["cost"], row["upper"], strict=True))[1:]
        cells = " | ".join(f"{cost / unit:.3f} ({most / unit:.3f})" for cost, most in pairs)
        lines.append(f"| {row['depth']:,} | {row['plain_us'] / 1000:.2f} ms | {cells} |")
    for row in record.get("costs_same_token", {}).get("depths", ()):
        alike = ", ".join(f"{cost / unit:.3f}" for cost in row["cost"][1:])
        lines.append(f"\nWith one token in all rows, at {row['depth']:,}, where rows share experts: {alike}.")
    return "\n".join(lines)


def sampling(record: Record) -> str:
    """What drawing a token takes, where that was measured."""
    if "sampling" not in record:
        return ""
    found = record["sampling"]
    return (
        f"Drawing the next token of a row takes {found['likeliest_us']:.1f} µs for the likeliest, "
        f"{found['all_us']:.1f} µs from all tokens, {found['limited_us']:.1f} µs with top-k and top-p."
    )


def loads(record: Record) -> str:
    """How fast a model file came to the card, where that was measured."""
    if "load" not in record:
        return ""
    load = record["load"]
    runs = " and in ".join(f"{run['seconds']:.1f} s ({run['gb_s']:.1f} GB/s)" for run in load["loads"])
    size = f"{load['bytes'] / 2**30:.1f} GiB"
    return f"A model file of {size} in the system's page cache was on the card in {runs}."


def breakdown(record: Record) -> str:
    """Kernels of a decode step at 2,048 tokens and of a prefill chunk, those of one per cent and more."""
    decode = speed_goals.step(record, "decode", depth=2048)
    parts = [f"A step of one row at 2K, {1000 * decode['ms']:,.0f} µs: {kernels(decode['kernels'])}"]
    for chunk in record["prefill"][:1]:
        parts.append(
            f"The last chunk of {chunk['chunk']:,} of a prompt of {chunk['tokens']:,}, "
            f"{1000 * chunk['last_ms']:,.0f} µs: {kernels(chunk['kernels'])}"
        )
    head = (
        "By kernel, in µs with the launches in brackets; a launch's time includes its wait for the one "
        "before it, and some run beside others, so that they add up to more than the whole."
    )
    return "\n\n".join([head, *parts])


def kernels(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every kernel of one per cent and more, the longest first, and the rest."""
    sums: dict[str, tuple[float, float]] = {}
    for row in rows:
        us, launches = sums.get(short(row["kernel"]), (0.0, 0.0))
        sums[short(row["kernel"])] = (us + row["us"], launches + row["launches"])
    whole = sum(us for us, _ in sums.values())
    shown = sorted((-us, name, count) for name, (us, count) in sums.items() if us >= whole / 100)
    listed = ", ".join(f"`{name}` {-us:,.0f} ({count:.0f})" for us, name, count in shown)
    return f"{listed}, the rest {whole + sum(us for us, _, _ in shown):,.0f}."


def short(kernel: str) -> str:
    """A kernel's name as people say it: no name space, no template arguments, one name for cuBLAS."""
    if kernel.startswith("nvjet"):
        return "cuBLAS"
    return re.split(r"[<(]", kernel)[0].rpartition("::")[2].removeprefix("void ").strip("_ ") or kernel[:40]


def gb10(record: Record) -> str:
    """What a GB10 could reach, by arithmetic from this record; empty for fewer than all layers."""
    if record["layers"] != ALL_LAYERS:
        return ""
    slow, fast, other = gb10_ms(record)
    return (
        f"On a GB10, where nothing was measured, arithmetic gives {1000 / (slow + other):.0f} to "
        f"{1000 / (fast + other):.0f} tok/s: at {GB10_GB_S} GB/s a step's bytes take {slow:.0f} ms if every "
        f"product keeps its share of the table and {fast:.0f} ms if all reach {KEPT}, as long reads do when "
        f"waiting is short beside the transfer; the {other:.1f} ms that are no product are taken as here."
    )


def gb10_ms(record: Record) -> tuple[float, float, float]:
    """Milliseconds that a GB10 reads for a step, with the shares measured here and with `KEPT` everywhere,
    and those of a step here that are no packed product."""
    rows = record["products"]["1"]
    whole = DENSE_GB + EXPERT_GB * USED
    read = sum(row["mb"] * row["launches"] for row in rows) / 1e3
    waited = sum(row["mb"] * row["launches"] / min(1.0, row["share_of_read"]) for row in rows) / 1e3
    slow = (waited + (whole - read) / KEPT) / GB10_GB_S * 1e3
    used = sum(row["us"] * row["launches"] for row in rows) / 1e3
    other = speed_goals.step(record, "decode", depth=2048)["ms"] - used
    return slow, whole / KEPT / GB10_GB_S * 1e3, max(0.0, other)


def floor_gb(rows: int) -> float:
    """Bytes that a step of so many rows must read, where rows share experts by chance alone."""
    return DENSE_GB + EXPERT_GB * EXPERTS * (1 - (1 - USED / EXPERTS) ** rows)


def replaced(document: str, content: str) -> str:
    """The document with what stands between the two marks replaced; ValueError if a mark is missing."""
    before, opened, rest = document.partition(OPEN)
    _, closed, after = rest.partition(CLOSE)
    if not opened or not closed:
        raise ValueError(f"the document needs the line {OPEN!r} and after it the line {CLOSE!r}")
    return f"{before}{OPEN}\n\n{content}\n\n{CLOSE}{after}"


def file_name(record: Record) -> str:
    """Where a record is kept: date, card, and the number of layers where they are not all."""
    card = re.sub(r"[^a-z0-9]+", "-", record["card"].lower().removeprefix("nvidia ")).strip("-")
    part = "" if record["layers"] == ALL_LAYERS else f"-{record['layers']}-layers"
    return f"{record['date']}-{card}{part}.json"


def wrong(report: Record) -> str:
    """Why a report cannot be a record: cut short, or of a build that computes wrongly; empty if it can."""
    lacking = [name for name in PARTS if name not in report]
    if lacking:
        return f"it lacks {', '.join(lacking)}, as that of a bench that was cut short"
    if type(report["layers"]) is not int or not re.search("[a-zA-Z0-9]", str(report["card"])):
        return f"its card is {report['card']!r} and its layers are {report['layers']!r}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", str(report.get("date", "2026-01-01"))):
        return f"its date is {report['date']!r}, which is none"
    if not report.get("storage", {}).get("same_logits", True):
        return "the logits over packed rows and over wide ones of the same values differ"
    if not all(row.get("finite", True) for part in ("decode", "rows") for row in report.get(part, ())):
        return "a step gave logits that are no finite numbers"
    return ""


def completed(report: Mapping[str, Any], commit: str, load: Mapping[str, Any] | None) -> dict[str, Any]:
    """The report as a record: with its date, the commit it is of, and a timed load beside it."""
    record = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit, **report}
    return {**record, "load": load} if load else record


def main(words: Sequence[str] | None = None) -> int:
    """Keep a report as the record, and write plot and document anew."""
    parser = argparse.ArgumentParser(description="Write the measured part of docs/performance.md.")
    parser.add_argument("report", type=Path, help="what `engine bench --synthetic NAME --out FILE` wrote")
    parser.add_argument("--commit", help="the commit it is of; default: that of this checkout")
    parser.add_argument("--load", type=Path, help="what `engine bench --load MODEL --out FILE` wrote")
    options = parser.parse_args(words)
    from reports.speed_plot import draw

    try:
        load = _read(options.load) if options.load else None
        report = _read(options.report)
        if fault := wrong(report):
            parser.error(f"{options.report} is not kept: {fault}; run `pytest -m device` on that card first")
        record = completed(report, options.commit or _head(), load)
        name = file_name(record)
        drawing, content = draw(record), section(record, name)
    except BROKEN as error:
        parser.error(
            f"{options.report} is not kept: a part of it, or of a timed load, is not as the bench writes it "
            f"({type(error).__name__}: {error}); it needs a step of one row at 2,048 tokens, and all figures"
        )
    document = replaced(DOCUMENT.read_text(encoding="utf-8"), content)
    # All is made before any of it is written, so that record, plot and document are of one report.
    (RECORDS / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PLOT.write_text(drawing, encoding="utf-8")
    DOCUMENT.write_text(document, encoding="utf-8")
    return 0


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ValueError for anything else, numbers that are none among it."""

    def refuse(word: str) -> None:
        raise ValueError(f"{path} has the number {word}")

    try:
        found: object = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise TypeError(f"{path} holds no JSON object")
    return found


def _head() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
