"""What is wanted of the speed on one card, figure by figure, and how a record stands to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Record = Mapping[str, Any]
Figure = Callable[[Record], float]
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure of a record against what is wanted: at first, in the end, and at best."""

    name: str
    value: Figure
    wanted: tuple[float | None, float | None, float | None]
    form: str = "{:.2f}"
    more: bool = False  # is more better?

    def row(self, record: Record) -> str:
        """The row of the table; empty where the record lacks the figure."""
        try:
            value = self.value(record)
        except (KeyError, StopIteration):
            return ""
        cells = [self.form.format(value), *(self._cell(value, limit) for limit in self.wanted)]
        return f"| {self.name} | {' | '.join(cells)} |"

    def _cell(self, value: float, limit: float | None) -> str:
        if limit is None:
            return NONE
        held = value >= limit if self.more else value <= limit
        return f"{'≥' if self.more else '≤'} {self.form.format(limit)}{' ✓' if held else ''}"


def step(record: Record, part: str, **wanted: object) -> Mapping[str, Any]:
    """The entry of a list whose fields have these values; StopIteration where there is none."""
    found: Mapping[str, Any] = next(
        row for row in record[part] if all(row.get(key) == value for key, value in wanted.items())
    )
    return found


def share(record: Record, *names: str) -> float:
    """Time of reading the bytes of these products by their own time, for one row; KeyError without one."""
    table = {row["product"]: row for row in record["products"]["1"]}
    rows = [table[name] for name in names]
    return float(sum(row["read_us"] for row in rows) / sum(row["us"] for row in rows))


def _rate(part: str, **wanted: object) -> Figure:
    return lambda record: float(step(record, part, **wanted)["tok_s"])


def _growth(depth: int) -> Figure:
    """Time of a token at a depth by that at 2,048 tokens."""
    return lambda r: float(step(r, "decode", depth=depth)["ms"] / step(r, "decode", depth=2048)["ms"])


def _verify(record: Record) -> float:
    """A step of five rows by one of one row at 2,048 tokens, each timed as decode is."""
    return float(step(record, "rows", rows=5)["ms"] / step(record, "decode", depth=2048)["ms"])


def _dense(record: Record) -> float:
    return min(share(record, name) for name in ("q_b", "output_a", "output_b", "output head"))


def _routed(record: Record) -> float:
    return share(record, "routed gate, up", "routed and shared down")


def _stored(record: Record) -> float:
    """Packed rows by wide ones, where they were compared at 131,072 tokens."""
    return float({record["storage"]["depth"]: record["storage"]["packed_by_wide"]}[131072])


GOALS: Final = (
    Goal("decode, one stream, 2K, tok/s", _rate("decode", depth=2048), (100, 200, 300), "{:.0f}", True),
    Goal("time a token at 131K ÷ at 2K", _growth(131072), (1.3, 1.15, None)),
    Goal("the same at 248K", _growth(253952), (None, None, 1.10)),
    Goal("the same at 519K", _growth(519168), (None, None, 1.20)),
    Goal("packed ÷ wide rows at 131K", _stored, (1.0, 1.0, 0.95)),
    Goal("prefill of 8K, tok/s", _rate("prefill", tokens=8192), (3000, 6000, 10000), "{:,.0f}", True),
    Goal("prefill of 131K, tok/s", _rate("prefill", tokens=131072), (2000, 4000, 8000), "{:,.0f}", True),
    Goal("step of five rows ÷ of one, 2K", _verify, (2.0, 1.75, 1.4)),
    Goal("sixteen streams, tok/s", _rate("rows", rows=16), (500, 1000, 1500), "{:,.0f}", True),
    Goal("Q8_0 of 33 MB and more, the least: reading ÷ ours", _dense, (0.65, 0.75, 0.9), more=True),
    Goal("routed experts with the shared down: reading ÷ ours", _routed, (0.35, 0.55, 0.75), more=True),
    Goal(
        "live tokens beside the model in 119 GiB, millions",
        lambda r: r["capacity"]["tokens"] / 1e6,
        (6, 8, 9),
        more=True,
    ),
    Goal(
        "model file to the card from memory, GB/s",
        lambda r: max(run["gb_s"] for run in r["load"]["loads"]),
        (4, None, None),
        "{:.1f}",
        True,
    ),
)


def table(record: Record) -> str:
    """Measured against wanted, every figure that the record has."""
    rows = [row for row in (goal.row(record) for goal in GOALS) if row]
    head = ["| figure | measured | wanted first | in the end | aim |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])
